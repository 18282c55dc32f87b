//! The task that owns a source.
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

mod call;

mod state;
pub(super) use state::Driver;

mod opening;

mod parts;

mod receiving;

mod settling;

mod revoking;

mod stopping;

mod run;
