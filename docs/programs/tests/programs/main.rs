//! The programs of the book, each run as a reader runs it, against a real server.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod program;

mod alone;
mod kafka;
mod redis;
mod serving;
mod sql;
