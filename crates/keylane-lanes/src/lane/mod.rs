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

// # States of a lane
//
// The whole transition table is `Phase::after` in `state.rs`. It is committed as `table.txt`, and
// checked at every transition in every build.
//
//                  offer to an absent key                       first `Pending`
//     (no lane) ──────────────────────────►  Ready  ─────────────────────────────►  Running
//         ▲                                  ▲ ▲ ▲                                  │ │ │ │
//         │                                  │ │ └── due ─── Backoff ◄── retry at ──┘ │ │ │
//         │                                  │ └── resume ── Halted ◄── given up ─────┘ │ │
//         │                                  └───────── done, more parked ──────────────┘ │
//         └──────────────────────────────────────────── done, nothing parked ─────────────┘
//
//     A lane that is paused or delayed, or that has a discipline, has these in addition:
//
//      (no lane) ── offer ──► Entered ── a runner takes it ──► Ready, or Scheduled if more has come
//      Waiting ── a message, a timer, an operator ──► Scheduled ── a runner takes it ──► Ready, …
//         ▲                                              │
//         └────────── nothing may start now ◄────────────┘         (done: Scheduled again, or gone)
//
// The ways that are drawn from Running also lead from Ready, for a handler that is ready at its
// first poll. In Entered, Ready and Running the head is out of the lane, as a *job*. A lane has one
// job. It is made together with the lane, later by the lane alone, and it is not `Clone`. So
// exclusion per key needs no check at run time. In Backoff and Halted the lane holds the head. In
// Scheduled and Waiting the first parked message will be the head.
//
// A plain lane lets its next message out when the head settles. A lane with a discipline stands in
// the ready queue *itself* (`Scheduled`), and is asked when a runner takes it. Until then a newer
// message may replace the one that waits, a time may pass, or a batch may grow. Its first message
// goes into the queue as in a plain lane where that is enough: then the runner lets it `rejoin` the
// messages that have come since.
//
// A waiting lane is in no queue and has no task. What ends the wait depends on its reason:
//
// - `Delay`, `Rate`, `Linger`: a moment, for which there is a timer; or a full batch.
// - `Gap`: the missing version, a timer or an operator. `HaltedGap`: the same without a timer.
// - `Load`, `Record`: the answer of the version store. `Paused`: `resume`.
// - `Empty`: a message that comes, or one that the router has merged.
//
// Timers are not taken back. A timer that finds another state than the one it was armed for does
// nothing.
//
// # Files
//
// Each part owns its fields and what they answer: `state`; `backlog`, on a `deque`; `more`, which
// most lanes do without, with what the `plan` keeps. `core` is the lane: these three, and all that
// a plain lane does. Above it calls go in one direction. `gate` and `step` have what decisions
// share. `next` decides what starts, what is waited for, or that the lane goes. Each event has a
// file that ends there: `offer`, `rejoin`, `hold`, `decide`, `wake`, `revoke`, `end`.

mod core;
pub use core::{Lane, Next, Offered};

mod state;
#[cfg(test)]
#[cfg(not(keylane_shuttle))]
pub(crate) use state::{Phase, Timer, Transition};
pub use state::{State, WaitReason};

mod backlog;
pub use backlog::Backlog;
pub(crate) use backlog::Spares;

mod deque;

mod more;

pub(super) mod plan;

mod effects;
pub use effects::{Change, Due, Effects, Few, Gap, Left, Out, Rare, Stall, Store, Taken};

mod gate;

mod step;

mod next;

mod offer;

mod rejoin;

mod hold;
pub use hold::Hold;

mod decide;
pub use decide::{Decision, Undecidable};

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
