#![doc = include_str!("../README.md")]

// # How it works
//
//     Office ──► Orders ──► Task: runs what the Machine (pure) wants ──► a phase of the Career
//       ▲                     │                                     └──► a call to ElectionStore
//       └── events, leader ◄──┘                      Leases: renews all terms of the process
//
// **What decides who leads?** The lease of the term, and nothing else (`keylane-leases`).
// **What does the store add?** Candidates in an order, and the record of the last term: whether it
// has ended in order (`store.rs`).
// **What decides what a candidate does next?** The machine, from inputs and a time
// (`machine/state.rs`). The task compares what it wants with what runs (`task.rs`).

mod career;
pub use career::{Career, End, Following, Stop, Term};

mod lanes;
pub use lanes::TermLanes;

mod candidates;

#[cfg(feature = "consume")]
mod consuming;
#[cfg(feature = "consume")]
pub use consuming::{Consuming, consuming};

mod office;
pub use office::{Candidate, CandidateBuilder, Office};

mod elections;
pub use elections::Elections;

mod watching;
pub use watching::LeaderWatch;

mod events;
pub use events::{Event, Events};

mod settings;
pub use settings::Lost;

mod metrics;
pub use metrics::published_metrics;

mod memory;
pub use memory::MemoryElections;

pub mod store;
pub use store::ElectionStore;

pub mod conformance;
pub mod error;

mod calls;
mod guarded;
mod machine;
mod orders;
mod task;

pub use keylane_leases::Token;
