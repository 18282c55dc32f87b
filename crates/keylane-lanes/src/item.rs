//! What a lane with a discipline asks of the messages in it.

use keylane_rt::clock::Instant;

/// A parked message, as the plans of a lane see it.
pub trait Item: Sized {
    /// What is left of a message whose obligation another one took over.
    type Body;

    /// Its place in the order of acceptance.
    fn accepted_at(&self) -> u64;

    /// Its place among the messages of its key, where lanes sequence.
    fn version(&self) -> u64;

    /// How urgent it is; 0 is the most urgent.
    fn class(&self) -> u8;

    /// The time before which it must not start.
    fn not_before(&self) -> Option<Instant>;

    /// The time from which on it must not start, in nanoseconds since the epoch of the rules.
    fn expires_at(&self) -> Option<u64>;

    /// Whether it settles no earlier than the message that stands for it: a source must not be told
    /// that it is handled before that one is.
    fn settles_with_survivor(&self) -> bool {
        false
    }

    /// Messages that were merged into this one, and settle with it.
    fn merged_len(&self) -> usize;

    /// An older message settles with this one.
    fn absorb_older(&mut self, older: Self) -> Self::Body;

    /// A newer message settles with this one.
    fn absorb_newer(&mut self, newer: Self) -> Self::Body;

    /// What was merged into an older message settles with this one. The older one itself does not.
    fn inherit_merged(&mut self, older: &mut Self);

    /// These messages start with this one, as one batch.
    fn set_members(&mut self, members: Vec<Self>);

    /// Whether it is too late to start it.
    fn is_expired(&self, now: u64) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// Until when it must wait, if it must.
    fn delayed_until(&self, now: Instant) -> Option<Instant> {
        self.not_before().filter(|at| *at > now)
    }
}
