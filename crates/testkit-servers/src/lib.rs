//! Real servers for tests: databases, Kafka, ZooKeeper, etcd, Redis and Valkey, and a [`proxy`]
//! that puts faults between them and their clients.
//!
//! ```text
//!  test ── start ──► Postgres ──► a free port, a private folder
//!    │                  ├─ create_database ──► a URL for one test
//!    │                  ├─ kill, start_again ──► a crash and a recovery
//!    │                  └─ pause, resume ──► a server that hangs
//!    └─ ends, or is killed ──► the server is killed too
//! ```
//!
//! The servers must be installed: `cargo xtask setup` does it. A test never installs anything. A
//! database server takes 2 to 4 s to create, so the tests of one file should share one. Kafka is a
//! cluster, so its methods are the same but take the number of a node: see [`kafka`], and
//! [`zookeeper`] for ZooKeeper. Redis and Valkey have no databases to create, and take 0.1 s: see
//! [`redis`]. Nor has [`etcd`], 0.5 s.
//!
//! This works on Linux. On other systems it compiles, and `pause` does not reach all processes.

#![cfg(unix)]

mod server;
pub use server::Server;

mod postgres;
pub use postgres::{PostgreSql, Postgres};

mod bouncer;
pub use bouncer::{Bouncer, Pooling};

mod standby;

mod dump;
pub use dump::Dump;

mod mariadb;
pub use mariadb::{Maria, MariaDb};

pub mod etcd;
pub use etcd::{Etcd, EtcdBuilder, EtcdKind};

mod clock;
pub use clock::Clock;

pub mod kafka;
pub use kafka::{Kafka, KafkaBuilder};

pub mod proxy;

mod tls;
pub use tls::{Authority, Certificate, ServerTls};

pub mod redis;
pub use redis::{Fsync, Redis, RedisBuilder, RedisCluster, RedisKind, RedisSentinels};

pub mod zookeeper;
pub use zookeeper::{ZooKeeper, ZooKeeperBuilder};

mod error;
pub use error::ServerError;

mod kind;

mod cache;

mod daemon;

mod maven;

mod process;

mod program;

mod port;

mod proxies;
