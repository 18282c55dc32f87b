//! Runs jobs: from the ready queue through a handler or the dead-letter sink.
//!
//! ```text
//!  ready queue ──► runner ──► in flight ──► attempt        (one run of the handler)
//!                    │  ▲         │
//!                    │  └─────────┴─ "pending": the runner holds its lane from now on
//!                    └──► finish ──► settle, retry, dead letter ──► next message of the key
//! ```
//!
//! A runner knows its job in flight. The job in flight knows neither its runner nor its task.

// A runner takes jobs from the queue one by one. To take up to 32 at once was tried: into a slot
// from which another runner can take what has not started, with lanes that go on together. A
// message then took 6 % more instructions and 10 % more time on two cores, because each job passes
// one more lock, that of the slot, and is moved once more.

mod task;
pub(crate) use task::run;

mod runner;
pub(crate) use runner::Runner;

mod invoke;
pub(crate) use invoke::Invoke;

mod single;
pub(crate) use single::Single;

mod batch;
pub(crate) use batch::Batches;

mod poll;

mod letter;

mod in_flight;

mod kept;

mod head;

mod interrupt;

mod extras;

mod concurrency;
