//! Leases and elections in real servers: etcd.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod careers;
mod conformance;
mod elections;
mod faults;
mod fencing;
mod lanes;
mod support;
mod users;
