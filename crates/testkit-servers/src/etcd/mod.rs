//! etcd: one server, of two versions.
//!
//! ```text
//!  test ── start ──► Etcd ──► two free ports, a private folder
//!    ├─ kill, start_again ──► a crash and a recovery
//!    ├─ pause, resume ──► a server that hangs
//!    ├─ proxy ──► connections that are cut, slow or silent
//!    └─ save, put_back, restore ──► data that go back
//! ```
//!
//! etcd 3.4 comes in a package of Debian. 3.7 is built from its Go module by [`fetch`], because no
//! package has it: `cargo xtask setup` does that, where `go` is installed.

mod ask;

mod kind;
pub use kind::EtcdKind;

mod programs;
pub use programs::{fetch, is_there};

mod server;
pub use server::{Etcd, EtcdBuilder, EtcdData};
