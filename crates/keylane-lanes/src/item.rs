//! The questions of a lane with a discipline about its messages.

use keylane_rt::clock::Instant;

/// A parked message, as the plans of a lane see it.
pub trait Item: Sized {
    /// The rest of a message whose obligation another message took over.
    type Body;

    /// Returns its place in the order of acceptance.
    fn accepted_at(&self) -> u64;

    /// Returns its place among the messages of its key, where lanes sequence.
    fn version(&self) -> u64;

    /// Returns how urgent it is; 0 is the most urgent.
    fn class(&self) -> u8;

    /// Returns the time before which it must not start.
    fn not_before(&self) -> Option<Instant>;

    /// Returns the time from which on it must not start, in nanoseconds since the epoch of the
    /// rules.
    fn expires_at(&self) -> Option<u64>;

    /// Returns whether it settles no earlier than the message that stands for it: a source must not
    /// learn that it is handled before that message is.
    fn settles_with_survivor(&self) -> bool {
        false
    }

    /// Returns the number of messages that were merged into this one, and settle with it.
    fn merged_len(&self) -> usize;

    /// Takes an older message, which settles with this one.
    fn absorb_older(&mut self, older: Self) -> Self::Body;

    /// Takes a newer message, which settles with this one.
    fn absorb_newer(&mut self, newer: Self) -> Self::Body;

    /// Takes the messages that were merged into an older message; they settle with this one. The
    /// older message itself does not.
    fn inherit_merged(&mut self, older: &mut Self);

    /// Sets the messages that start with this one, as one batch.
    fn set_members(&mut self, members: Vec<Self>);

    /// Returns whether it is too late to start it.
    fn is_expired(&self, now: u64) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// Returns until when it must wait, if it must.
    fn delayed_until(&self, now: Instant) -> Option<Instant> {
        self.not_before().filter(|at| *at > now)
    }
}
