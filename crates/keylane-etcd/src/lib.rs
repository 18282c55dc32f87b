#![doc = include_str!("../README.md")]

// # How it works
//
//     EtcdElections ──► Board, pure: who is next, and what a candidate watches
//          │
//     EtcdLeases ──► Book, pure: which lease of etcd each key is on
//          │
//          ├──► Calls: transactions ──► Link: a connection for each runtime
//          └──► Watchman: the revision and the leader that were seen
//
// `leases/mod.rs` begins with a page about leases, `leases/book.rs` with one about the leases of
// etcd that many keys share, and `elections/mod.rs` with one about elections.

mod server;
pub use server::Etcd;

mod error;
pub use error::EtcdError;
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use keylane_connector::tls::Certificates;
pub use keylane_connector::tls::TlsFailure;
pub use keylane_connector::{ConfigError, ErrorKind};

mod elections;
pub use elections::EtcdElections;

mod leases;
pub use leases::{EtcdLeases, Fence, FenceError};

/// The client of etcd, whose types are in this crate's own functions.
pub use etcd_client;

mod link;
mod names;
mod seen;
mod tls;
