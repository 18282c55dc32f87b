//! Common parts of dispatcher tests: messages with an id, a producer that records every send, a
//! handler that records every attempt, and a judge of the whole history.
//!
//! ```
//! use keylane_testkit::scenario::{Producer, SECOND, dispatcher, paused, scripted};
//! use keylane_testkit::{Act, Evidence, History, Script};
//!
//! paused().block_on(async {
//!     let history = History::new();
//!     let script = Script::new(&history).otherwise(Act::ok().sleeps(SECOND));
//!     let dispatcher = dispatcher().concurrency(2).spawn(scripted(script)).unwrap();
//!     let producer = Producer::new(&history, dispatcher);
//!     producer.send_all(1, 3).await; // three messages of key 1, with the ids 1, 2 and 3
//!     producer.send(None).await; // and one without a key
//!     // Drains, and fails the test if the history breaks a rule.
//!     let report = producer.finish(Evidence::new()).await;
//!     assert_eq!(report.done, 4);
//!     assert_eq!(history.handled(), [1, 4, 2, 3]);
//! });
//! ```

mod broken_key;
mod dispatcher;
mod elsewhere;
mod engine_panics;
mod give_up;
mod handler;
mod held;
mod judge;
mod message;
mod producer;
mod random;
mod receipts;
mod runtime;
mod trials;
mod until;
mod wait;
mod waits;
mod wakes;

pub use broken_key::{BrokenKey, Fuse, Part};
pub use dispatcher::{ScriptedDispatcher, ScriptedReceipt, dispatcher, scripted};
pub use elsewhere::Elsewhere;
pub use engine_panics::{assert_no_engine_panics, watch_for_engine_panics};
pub use give_up::give_up;
pub use handler::{BoxHandler, boxed, by_key};
pub use held::Held;
pub use judge::{RULES_OF_A_WHOLE_LIFE, assert_nothing_left, assert_report_adds_up, judge};
pub use message::{Message, Numbered};
pub use producer::Producer;
pub use random::Random;
pub use receipts::{Receipts, outcome};
pub use runtime::{TestRuntime, on_both, paused, threads};
pub use trials::{cases, repeats, seed};
pub use until::{settle_until, until, until_async, until_within};
pub use wait::{MS, SECOND, drop_after_polls, quiet, settle, within, within_years};
pub use waits::check_waits;
pub use wakes::Wakes;
