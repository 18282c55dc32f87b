//! The judge of histories.
//!
//! [`check`] reads a history and judges it by the rules I1 to I15, see [`Rule`]. It is a pure
//! function of the records and of the [`Evidence`]. Evidence is information that records do not
//! contain, such as the allowed attempts, the counts of a report, or the remaining heap.
//!
//! A rule without its evidence never passes silently. For each rule the [`Verdict`] says that it
//! holds, that it holds in part and which evidence was missing, or why it was not judged.
//! [`Verdict::assert_judged`] asserts that rules were judged.
//!
//! # Assumptions of the rules
//!
//! - A crash ends attempts, a revoke does not; after either, a key may be delivered again.
//! - "Un-acked" means that no ack was confirmed. In a history without ack events all messages are
//!   un-acked.
//! - A message is settled when its handler ended well, its letter is durable, the message it was
//!   coalesced into is settled, or the evidence names it as handed back or discarded.
//! - Keyless messages have no order, no exclusion, and no lane.

mod evidence;
mod fencing;
mod figures;
mod judge;
mod judgement;
mod letters;
mod liveness;
mod order;
mod rule;
mod settlement;
mod story;
mod verdict;
mod versions;
mod violation;

#[cfg(test)]
mod tests;

pub use evidence::{Drained, Evidence};
pub use judge::check;
pub use rule::Rule;
pub use verdict::{Finding, Verdict};
pub use violation::Violation;
