//! ZooKeeper: one server, or an ensemble of three.
//!
//! ```text
//!  hosts() ──── client ───────────────────────────► client port ┐
//!  proxied() ── client ──► Proxy of the server ───► client port ├─ server 0 ── data, log
//!                other servers ──► Proxy of the pair ──► quorum ┘
//! ```
//!
//! Each server knows the others by the addresses of proxies: [`ZooKeeper::cut_off`] separates one
//! from the others, while clients reach it. Votes of elections do not go through a proxy; they do
//! not make a leader of a server that no other one follows.
//!
//! The jars come from Maven's repository through [`fetch`], which `cargo xtask setup` calls.

mod ensemble;
pub use ensemble::{Mode, Saved, ZooKeeper};

mod builder;
pub use builder::ZooKeeperBuilder;

mod jars;
pub use jars::{VERSION, fetch};

mod folder;

mod java;

mod server;

mod word;
