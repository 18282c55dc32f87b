//! Tests over several processes: a test starts its own executable again, kills and pauses what it
//! has started, and judges what all of them report.
//!
//! ```text
//!  test ── Process::start("processes::worker") ──► this executable, which runs that test only
//!    ├─ pause, resume, kill, stop ───────────────►   │      its input ends: it leaves
//!    ├─ wait_for ◄── lines of its output ────────────┤
//!    └─ Reader ◄──── a file that all append to ◄─────┘ Journal
//!         └─► Story: attempts at messages, and which were lost, out of order, repeated or at once
//! ```
//!
//! What a worker does, and which of the findings are errors, is the affair of each test. Only a
//! [`Trial`], for servers that fail over, has producers and a judge of its own, and so have
//! [`elections`].

#![cfg(unix)]

mod process;
pub use process::{Process, end_with_parent, orders, pause_in_turn, told_to_stop};

pub mod programs;

mod journal;
pub use journal::{Journal, Line, Reader, now};

mod story;
pub use story::{Attempt, Step, Story, What};

mod trial;
pub use trial::{Trial, Workers, task};

mod ledger;
pub use ledger::{Answer, Sent};

mod record;
pub use record::Entry;

mod verdict;
pub use verdict::Verdict;

mod court;

pub mod elections;
