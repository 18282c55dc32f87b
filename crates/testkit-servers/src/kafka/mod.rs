//! Kafka: a cluster of one to three nodes, each a broker and a controller.
//!
//! ```text
//!  bootstrap() ── client ─────────────────────────► DIRECT  ┐
//!  proxied() ──── client ──► Proxy of the node ───► PROXIED ├─ node 0 ── data, log
//!                  other nodes ── CONTROLLER, DIRECT ──────►┘
//! ```
//!
//! Kafka tells its clients the address of each node, for each listener separately. A client that
//! starts from [`Kafka::proxied`] gets the addresses of the proxies, and always uses them. The
//! nodes connect to each other directly: a fault of a proxy is a fault of the clients' network.
//!
//! The jars come from Maven's repository through [`fetch`], which `cargo xtask setup` calls.

mod cluster;
pub use cluster::Kafka;

mod builder;
pub use builder::KafkaBuilder;

mod jars;
pub use jars::{VERSION, fetch};

mod node;

mod java;

mod properties;

mod metadata;
