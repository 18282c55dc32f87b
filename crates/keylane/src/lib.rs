#![doc = include_str!("../../../README.md")]
//!
//! # The words
//!
//! | word | meaning |
//! | --- | --- |
//! | message | what you send; opaque to the engine |
//! | key | what orders messages |
//! | lane | the messages of one key that are accepted and not settled; it exists only while there are any |
//! | parked | accepted, waiting in its lane |
//! | ready | a lane whose head may start |
//! | in flight | the head's handler has started and has not finished |
//! | attempt | one run of the handler for one message, counted from 1 |
//! | settle | the single final outcome of an accepted message |
//! | receipt | a future the sender may keep; it resolves with the handler's answer, or why there is none |
//! | dead letter | a message given up on, with its key, its attempts and its last error |
//! | runner | the task in which handlers run |
//! | concurrency | most handlers in flight at once |
//! | capacity | most messages accepted and not settled |
//! | drain | no more in, finish what is in |
//! | hand back | return a message unhandled |

mod dispatcher;
pub use dispatcher::{Builder, Dispatcher, Ending, Lane, LaneState, LaneView, Permit, Receipt};

mod handler;
pub use handler::{Context, Handler};

mod retry;
pub use retry::{Retry, RetryBudget};

mod letter;
pub use letter::{DeadLetter, DeadLetterSink, Exhausted};

mod error;
pub use error::{
    BoxError, BuildError, Failure, LaneError, ReceiptError, ReserveError, SendError, TrySendError,
};

mod engine;
pub use engine::{HandedBack, Overflow, Report};

mod lanes;

mod observe;
pub use observe::Stats;

mod clock;
mod rt;

#[cfg(all(test, keylane_shuttle))]
mod schedules;

/// For implementing [`DeadLetterSink`], without another dependency.
pub use async_trait::async_trait;
