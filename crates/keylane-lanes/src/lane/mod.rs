//! One lane: a pure state machine. No async, no Tokio, no lock but that of the spare backlogs; the
//! time is an argument.
//!
//! A plain lane has one answer to "what is next": the oldest message. It is let out with `new`,
//! [`park`](Lane::park) and [`finish`](Lane::finish), and that is all that most dispatchers, the
//! queue, the keyed semaphore and the streams ask of it.
//!
//! A lane with a discipline has more to decide: [`offer`](Lane::offer) takes a message,
//! [`next`](Lane::next) says what starts, [`decide`](Lane::decide) applies an operator's decision,
//! [`wake`](Lane::wake) handles a timer, and [`learn`](Lane::learn) and
//! [`recorded`](Lane::recorded) take the answers of the version store. All of them write what
//! follows into [`Effects`]. The first message may go into the ready queue itself: its lane is made
//! with `new` if it only expires. If it coalesces or batches, the lane is made with
//! [`entered`](Lane::entered), and the runner that takes the message calls
//! [`rejoin`](Lane::rejoin).

mod backlog;
pub(crate) use backlog::Spares;

mod core;
pub use core::{Lane, Next, Offered};

mod state;
#[cfg(test)]
#[cfg(not(keylane_shuttle))]
pub(crate) use state::{Phase, Timer, Transition};
pub use state::{State, WaitReason};

mod effects;
pub use effects::{Change, Due, Effects, Few, Gap, Left, Out, Rare, Stall, Store, Taken};

mod gate;

mod offer;

mod next;
pub use next::Hold;

mod decide;
pub use decide::{Decision, Undecidable};

pub(super) mod plan;

mod wake;

mod revoke;

mod end;
pub use end::Evicted;

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod testing;

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod table;

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod plans;

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod cases;
