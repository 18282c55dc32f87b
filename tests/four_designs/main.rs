//! The `four_designs` example: what it says about the designs is so, and its picture shows it.
//!
//! The example's own modules run in this process and in stopped time: a message that waits there
//! waits for another message, and not for a busy machine.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

// The example itself, module by module, as its `main.rs` lists them.
#[path = "../../examples/four_designs/arguments.rs"]
mod arguments;
#[path = "../../examples/four_designs/crowd.rs"]
mod crowd;
#[path = "../../examples/four_designs/crowd_picture.rs"]
mod crowd_picture;
#[path = "../../examples/four_designs/designs/mod.rs"]
mod designs;
#[path = "../../examples/four_designs/experiment.rs"]
mod experiment;
#[path = "../../examples/four_designs/handler.rs"]
mod handler;
#[path = "../../examples/four_designs/outcome.rs"]
mod outcome;
#[path = "../../examples/four_designs/picture.rs"]
mod picture;
#[path = "../../examples/four_designs/table.rs"]
mod table;
#[path = "../../examples/four_designs/traffic.rs"]
mod traffic;

mod support;

mod command_line;
mod crowds;
mod drawing;
mod waits;
