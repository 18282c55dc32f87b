//! A source in memory with faults that a test orders.
//!
//! ```text
//!  test ── publish, faults ──► ReferenceServer ◄── receive, settle, confirm ── ReferenceSource
//!    ▲                              │                                               ▲
//!    └──── entries, counts ─────────┘                      one session for each `open` ─┘
//! ```
//!
//! The server outlives its sources. A message that a source has not acked comes again in its next
//! session, in a session of another source, or in the next generation. Time is Tokio's, so tests
//! can pause it.
//!
//! # Examples
//!
//! Three messages; the first is handled again because its ack was lost:
//!
//! ```
//! use keylane::source::{Features, RawMessage};
//! use keylane::{Context, Dispatcher, OnExhausted};
//! use keylane_testkit::reference::ReferenceServer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ReferenceServer::new(Features::new().survives_restart());
//! server.publish((1..=3).map(|id| RawMessage::new(vec![id]).key("orders")));
//! server.faults().cut_before_ack(1); // the next settlement never arrives
//!
//! let handler = |_: Context<_>, _: RawMessage| async { Ok::<(), std::io::Error>(()) };
//! let orders = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
//!     .on_exhausted(OnExhausted::Halt)
//!     .spawn(handler)?;
//! let intake = orders.consume(server.source())?;
//! server.until(|server| server.left() == 0).await;
//! let report = intake.stop().await;
//! assert!(report.restarts == 1 && report.acked == 3 && report.given_back >= 1);
//! # Ok(())
//! # }
//! ```

mod place;
pub use place::Place;

mod server;
pub use server::ReferenceServer;

mod source;
pub use source::ReferenceSource;

mod faults;
pub use faults::Faults;

mod call;
pub use call::{Call, Loss};

mod entry;
pub use entry::{Counts, Entry, Fate, KeptLetter, MessageState};

mod state;

mod plan;

mod guard;
