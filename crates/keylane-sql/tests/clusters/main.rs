//! Primaries that are lost while an inbox works on them, and standbys that take over.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod mariadb;
mod postgres;
mod site;
mod worker;
