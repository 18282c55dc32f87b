//! The `replay` example: a right history is called right by every design, and nothing else is.
//!
//! Most tests run the example's own modules in this process. `program` builds it and runs it as a
//! reader would, for what only a process shows: exit status, environment, a `git` that misbehaves.
#![cfg(not(keylane_shuttle))]
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

// The example itself, module by module, as its `main.rs` lists them.
#[path = "../../examples/replay/arguments.rs"]
mod arguments;
#[path = "../../examples/replay/designs/mod.rs"]
mod designs;
#[path = "../../examples/replay/event.rs"]
mod event;
#[path = "../../examples/replay/git.rs"]
mod git;
#[path = "../../examples/replay/handler.rs"]
mod handler;
#[path = "../../examples/replay/progress.rs"]
mod progress;
#[path = "../../examples/replay/raw.rs"]
mod raw;
#[path = "../../examples/replay/replay.rs"]
mod replay;
#[path = "../../examples/replay/report.rs"]
mod report;
#[path = "../../examples/replay/state.rs"]
mod state;

mod support;

mod clones;
mod command_line;
mod faults;
mod histories;
mod program;
mod reading;
mod refusals;
mod settings;
