//! What the driver decides. Pure: it knows no Tokio, no clock and no lock, and time is an argument.
//!
//! Whatever the source, the engine, the handle and the clock can tell the driver is one function of
//! [`Core`]. Such a function changes the state and appends [`Action`]s, which the task takes with
//! [`next_action`](Core::next_action) and carries out one by one. The answer of the source to a call
//! is an event again. Actions that follow from an answer come before those that were there already,
//! as if each call had been made where it was decided.
//!
//! ```text
//!               opens          opened
//!   Waiting ──────────► Opening ─────► Running
//!      ▲                   │              │
//!      └───────────────────┴──────────────┤ failed, open_failed
//!
//!   each of them ── stop, end of the source, closed dispatcher ──► Stopping ── finish ──► Closing
//! ```
//!
//! The whole table of transitions is `phases.txt`, and a test compares it with the code.
//!
//! # What holds
//!
//! 1. A position settles once: with the source, or nowhere once its generation is over.
//! 2. What is handed over in `Stopping` goes back. At the deadline of the stop, so does what has
//!    not started.
//! 3. A generation is released after the last settlement of it was told and confirmed, or when
//!    attempts of it do not end in time; the source is not told of those.
//! 4. After a failure no call is left of those that were decided before. What follows from one
//!    event has its calls last, so no mark is set on a slot that is free by then.
//! 5. `received = acked + dead_lettered + nacked + given_back + held`, after each event.

mod trouble;
pub(super) use trouble::{FAR, Trouble, later, panicked};

mod action;
pub(super) use action::{Action, Call, Unplaced};

mod phase;

mod silence;

mod failures;
pub(super) use failures::Severity;

mod held;

mod unconfirmed;

mod counts;

mod ledger;

mod revocation;
pub(super) use revocation::SWEEP;

mod revocations;

mod parts;
pub(super) use parts::Saying;

mod state;
pub(super) use state::{Core, Terms};

mod ending;

mod revoking;

mod failing;

mod opening;

mod receiving;

mod settling;

mod turn;
pub(super) use turn::{InletView, Turn};
