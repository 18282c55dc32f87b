//! Real servers, as tests use them: they keep what was committed, hang when told to, and leave
//! nothing behind.
//!
//! The servers must be installed: `cargo xtask setup`.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(target_os = "linux")]

mod kafka;
mod killed;
mod processes;
mod redis;
mod suite;
mod zookeeper;

mod postgres {
    use testkit_servers::Postgres;

    crate::suite::server_tests!(Postgres, "postgres");
}

mod mariadb {
    use testkit_servers::MariaDb;

    crate::suite::server_tests!(MariaDb, "mysql");
}
