//! ZooKeeper: one server, or an ensemble of three.
//!
//! ```text
//!  hosts() ──── client ───────────────────────────► client port ┐
//!  proxied() ── client ──► Proxy of the server ───► client port ├─ server 0 ── data, log
//!              other servers ──► Proxies of the pair ──► server ports ┘
//! ```
//!
//! Each server has a file of hosts in which the names of the others are addresses of proxies:
//! [`ZooKeeper::cut_off`] separates one from the others, while clients reach it.
//!
//! The jars come from Maven's repository through [`fetch`], which `cargo xtask setup` calls.

mod ensemble;
pub use ensemble::{Saved, ZooKeeper};

mod mode;
pub use mode::Mode;

mod builder;
pub use builder::ZooKeeperBuilder;

mod jars;
pub use jars::{VERSION, fetch};

mod folder;

mod java;

mod server;

mod word;
