//! The conformance suite, run against the reference source; and the suite itself, run against
//! sources that each have one planted defect.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod defects;
mod harness;
mod spoiled;
mod suite;

/// Each case against a reference source that can do everything.
mod reference {
    keylane_testkit::conformance_tests!([start_paused = true] crate::harness::everything());
}
