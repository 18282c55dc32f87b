//! Elections whose leaders are killed, paused, cut off and replaced, and the judge of what they do.
//!
//! ```text
//!  test: Trial ── faults ──► workers: a Career each ── writes ──► fenced sink, and its plain twin
//!    │                          └─► Journal                              │
//!    └─► Verdict ◄──────────────────────┴──── in the order of the sinks ─┘
//! ```
//!
//! All of it is generic over the store. A test has a [`Site`], which is the servers, and a worker
//! has a [`Sink`], which writes into them.

mod record;

mod fault;
pub use fault::Fault;

mod site;
pub use site::{Answer, Cut, Sink, Site, Write, Written};

mod worker;
pub use worker::Candidacy;

mod scene;

mod trial;
pub use trial::{Trial, WORKERS, ttl};

mod court;
pub use court::Tenure;

mod verdict;
pub use verdict::Verdict;

mod gaps;
pub use gaps::Gaps;

#[cfg(target_os = "linux")]
mod crowd;
#[cfg(target_os = "linux")]
pub use crowd::Crowd;
