//! The tools of keylane's tests: a recorder and its judge, handlers that follow a script, and the
//! means to hold and release handlers.
//!
//! ```text
//!  test ──Script──► handlers ──┐                             ┌─► Verdict: every rule, and whether
//!    │     Gate ──► hold them  ├─ Event ─► History ─► check ─┤     the evidence was enough
//!    └─ LetterBox ─► sink ─────┘              Evidence ─┘    └─► Violations, with an excerpt
//! ```
//!
//! [`scenario`] puts these around a dispatcher. Most tests need no other part.
//! [`reference`](mod@reference) is a source in memory with faults that a test orders, and
//! [`conformance`] is the suite that every source passes.
//!
//! The checker does not depend on the engine. A handler under test, a model and a broker record the
//! same [`Event`]s, and one judge reads them all. Time is Tokio's, so tests can pause it.
//!
//! # Examples
//!
//! A worker that handles messages one by one, and its verdict:
//!
//! ```
//! use std::time::Duration;
//! use keylane_testkit::{Act, Evidence, History, Rule, Script};
//! use tokio::time::Instant;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let history = History::new();
//! let script = Script::new(&history)
//!     .otherwise(Act::ok().sleeps(Duration::from_millis(10)))
//!     .attempt(2, 1, Act::error()); // the second message fails at first
//!
//! for (key, seq, id) in [(1, 1, 1), (1, 2, 2), (9, 1, 3)] {
//!     history.sending(key, seq, id).ok(); // what `send(..).await` answered
//!     let mut attempt = 1;
//!     while script.run(key, id, attempt).await.is_err() {
//!         attempt += 1;
//!     }
//! }
//!
//! let evidence = Evidence::new().quiescent(Instant::now()).max_attempts(2).concurrency(1);
//! let verdict = history.check(&evidence).expect("a correct worker");
//! verdict.assert_judged(&[Rule::NoLoss, Rule::NoInvention, Rule::Exclusion, Rule::Order]);
//! println!("{verdict}"); // which rules hold, and which lacked their evidence
//!
//! // And one that is wrong: it starts the next message of key 1 while the first still runs.
//! let history = History::new();
//! let script = Script::new(&history).otherwise(Act::never());
//! history.sending(1, 1, 1).ok();
//! history.sending(1, 2, 2).ok();
//! let overlapping = (script.run(1, 1, 1), script.run(1, 2, 1));
//! let violations = history.check(&Evidence::new()).expect_err("an overlap");
//! assert_eq!(violations[0].rule, Rule::Exclusion);
//! assert_eq!(violations[0].ids, [1, 2]);
//! println!("{}", violations[0]); // with the part of the history that shows it
//! # drop(overlapping);
//! # }
//! ```

mod check;
mod engine;
mod events;
mod gate;
mod history;
mod letters;
mod lines;
mod script;
mod texts;

pub mod conformance;
pub mod fuzz;
pub mod reference;
pub mod scenario;

pub use check::{Drained, Evidence, Finding, Rule, Verdict, Violation, check};
pub use engine::LetterSink;
pub use events::{Acceptance, Event, Id, Key, Outcome, Record, Token};
pub use gate::{Arrivals, Gate, Pass};
pub use history::{History, Sending};
pub use letters::{Letter, LetterBox, LetterRefused};
pub use lines::{Lines, set_subscriber};
pub use script::{Act, Cue, Script, ScriptError, Scripted};
pub use texts::assert_text;
