//! The task that owns a source.
//!
//! `core/` decides, and knows neither Tokio nor a clock. The other files are the task: it polls,
//! tells the core what it has polled, and carries out what the core answers. `machine.rs` has what
//! is done at once, `task.rs` the calls of the source, `run.rs` the loop. `simulation.rs` tries the
//! core against a model of a source, without a task.
//!
//! # How it ends
//!
//! 1. It is asked to stop, the source comes to its end, or the dispatcher closes: nothing more is
//!    received.
//! 2. What is here settles. If the dispatcher is closed, what is not in a lane yet goes back at
//!    once.
//! 3. At the deadline of the stop, what has not started goes back; later, attempts in flight are
//!    dropped.
//! 4. Nothing is held any more: the acks are confirmed, and the source is closed.
//! 5. The report stands.

mod core;

#[cfg(all(test, not(keylane_shuttle)))]
mod simulation;

mod call;

mod machine;

mod task;
pub(super) use task::Driver;

mod opening;

mod receiving;

mod letters;

mod lines;

mod wait;

mod run;
