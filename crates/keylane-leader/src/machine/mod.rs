//! The states of a candidate. Pure: time is an argument, and other code carries out what the
//! machine wants.
//!
//! ```text
//!               is next, and the leader leaves
//!   Candidate ◄──────────────────────────────► Preparing
//!     │    ▲                                       │
//!     │    └──────────── a pause ───────────┐      │
//!     │ granted                             │      │ granted
//!     └───────────► Inaugurating ───────────┼──────┘
//!                     │      └─ failed ──► Leaving ──► Over
//!                     ▼                     ▲  ▲
//!                 Executing ─ lost, ends ───┘  │
//!                   │    ▲                     │
//!          overdue  ▼    │ renewed             │
//!                  Doubtful ─ lost, ends ──────┘
//! ```
//!
//! After each input the task compares what the machine wants (`Wants`) with what is running: a
//! phase of the career, and a call to the store. What is no longer wanted is dropped.

mod input;
#[cfg(test)]
mod simulation;
mod state;
#[cfg(test)]
mod table;

pub(crate) use self::input::{Call, Input, Outcome, Phase, Sight, Succession};
pub(crate) use self::state::{Machine, Name};
