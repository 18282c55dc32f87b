//! The spool through its public face.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod disk;
mod displaced;
mod ending;
#[allow(
    dead_code,
    reason = "made for the tests of the inbox, which use all of it"
)]
#[path = "../../../keylane-inbox/tests/faults/disk.rs"]
mod faulty;
mod inbox;
mod kill;
mod limits;
mod refusals;
mod sinks;
mod support;

#[path = "../../../keylane-inbox/tests/support/tmpfs.rs"]
mod tmpfs;
