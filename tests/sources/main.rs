//! Sources that are consumed: what the driver guarantees, shown with the reference source in paused
//! time.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod given;
mod health;
mod support;

mod attempts;
mod batches;
mod chaos;
mod deferral;
mod drawn;
mod endings;
mod events;
mod hot_chaos;
mod leased;
mod letters;
mod limits;
mod order;
mod pause;
mod policies;
mod recall;
mod resized;
mod restart;
mod revoke;
mod several;
mod version_chaos;
