//! Streams that are polled by hand: scripted elements, and a task that knows whether it was woken.

mod scenario;
mod task;

pub(crate) use scenario::{Fate, Scenario, Script, State};
pub(crate) use task::{Scripted, Task, catch, run, throw};
