//! The guarantees of the engine.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

mod acknowledgement;
mod adaptive;
mod bounds;
mod broken_keys;
mod build;
mod cancel_safety;
mod dead_letters;
mod drains_under_load;
mod endings;
mod exclusion;
mod halt;
mod hard_handlers;
mod idle_keys;
mod independence;
mod keyless;
mod leased;
mod order;
mod overflow;
mod panics;
mod priority;
mod rate;
mod resize;
mod retry;
mod runtime_dropped;
mod settlement;
mod shutdown;
mod stuck;
mod timeouts;
mod wedges;
