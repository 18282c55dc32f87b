//! The settings of an intake.

use std::time::Duration;

use crate::error::ConsumeError;

/// How many messages are held for each handler in flight, where nothing was said.
const HELD_EACH: usize = 16;
const FEWEST_HELD: usize = 2_048;
const MOST_HELD: usize = 8_192;

/// The time at which a source is told that a message is handled.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guarantee {
    /// Before the handler starts. A crash loses the messages that are here; none is handled twice.
    AtMostOnce,
    /// When the message has settled. After a crash, messages that were in flight, or done and not
    /// confirmed, come again.
    #[default]
    AtLeastOnce,
    /// Like [`AtLeastOnce`](Self::AtLeastOnce), but a message that comes again after it was handled
    /// does not run: its version is in the [`VersionStore`](crate::source::VersionStore) of the dispatcher.
    /// The effect of an attempt and the record of its version are committed together only if the
    /// handler does so, in one transaction of the same database.
    EffectivelyOnce,
}

/// The settings of an intake: limits, times, and when the source is told.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane::consume::{Guarantee, IntakeSettings};
///
/// let settings = IntakeSettings::new()
///     .held(1_000)
///     .guarantee(Guarantee::AtLeastOnce)
///     .revoke_within(Duration::from_secs(5));
/// # let _ = settings;
/// ```
#[derive(Clone, Debug)]
pub struct IntakeSettings {
    /// `None`: as the concurrency is.
    held: Option<usize>,
    pub(super) held_bytes: usize,
    pub(super) deferred: usize,
    pub(super) guarantee: Guarantee,
    pub(super) revoke_within: Duration,
    pub(super) stall_after: Duration,
    pub(super) longest_pause: Duration,
    pub(super) confirm_every: Duration,
}

impl Default for IntakeSettings {
    fn default() -> Self {
        Self::new()
    }
}

impl IntakeSettings {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self {
            held: None,
            held_bytes: usize::MAX,
            deferred: 1_000_000,
            guarantee: Guarantee::default(),
            revoke_within: Duration::from_secs(10),
            stall_after: Duration::from_secs(60),
            longest_pause: Duration::from_secs(30),
            confirm_every: Duration::from_secs(1),
        }
    }

    /// Sets the maximum number of messages of this source that are not settled.
    ///
    /// Messages that wait beside full lanes count, except the [`deferred`](Self::deferred) ones. At
    /// this limit the source hands over nothing until some messages settle. Near it, the
    /// source gets the settlements in batches, at least every millisecond.
    ///
    /// The default is 16 times the [`concurrency`](crate::Builder::concurrency) with which the
    /// dispatcher begins, from 2,048 to 8,192: enough for the handlers to find other keys while
    /// some keys wait.
    #[must_use]
    pub fn held(mut self, most: usize) -> Self {
        self.held = Some(most);
        self
    }

    /// Sets the maximum number of bytes of messages of this source that are not settled, beside the
    /// limit of [`held`](Self::held). By default there is no limit.
    ///
    /// At this limit the source hands over nothing until some messages settle. It exceeds the limit
    /// by what it has in hand then: one message, or several, if its store answers with several at
    /// once. [Deferred](Self::deferred) messages do not count, and neither do messages that a
    /// source has read ahead and not handed over.
    ///
    /// A message has the [size](keylane_source::Delivery::bytes) that its source gives it; for a
    /// raw message that is the size of its key, payload, id and headers.
    #[must_use]
    pub fn held_bytes(mut self, most: usize) -> Self {
        self.held_bytes = most;
        self
    }

    /// The limit for a dispatcher with so many handlers in flight.
    pub(super) fn most_held(&self, concurrency: usize) -> usize {
        let usual = || concurrency.saturating_mul(HELD_EACH);
        self.held
            .unwrap_or_else(|| usual().clamp(FEWEST_HELD, MOST_HELD))
    }

    /// Sets the maximum number of messages beside full lanes of which only the position is kept;
    /// 1,000,000 by default.
    ///
    /// They are read again when their lane has room, and do not count as [`held`](Self::held) until
    /// then. With zero, no message is deferred.
    ///
    /// Messages are deferred only if the source can
    /// [read a position again](keylane_source::Features::random_access), and neither where lanes
    /// [sequence](crate::Builder::sequence) nor with [`Guarantee::AtMostOnce`]. The first 64
    /// messages of a full lane are always kept; with a limit of [`held`](Self::held) below 512, an
    /// eighth of that limit.
    #[must_use]
    pub fn deferred(mut self, most: usize) -> Self {
        self.deferred = most;
        self
    }

    /// Sets when the source is told; [`Guarantee::AtLeastOnce`] by default.
    #[must_use]
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = guarantee;
        self
    }

    /// Sets how long attempts in flight may go on after a revoke, after the deadline of a stop, or
    /// when the source has failed; 10 seconds by default. Then they are dropped; at once if another
    /// process may have their messages.
    #[must_use]
    pub fn revoke_within(mut self, limit: Duration) -> Self {
        self.revoke_within = limit;
        self
    }

    /// Sets how long the source may be silent, or take for one call, before it is opened again; 60
    /// seconds by default. A healthy source that has no messages says so after half of that.
    /// `Duration::MAX` sets no limit.
    #[must_use]
    pub fn stall_after(mut self, limit: Duration) -> Self {
        self.stall_after = limit;
        self
    }

    /// Sets the longest pause before a source that failed is opened again; 30 seconds by default.
    /// The first pause is 100 milliseconds, and each further one is twice as long.
    #[must_use]
    pub fn longest_pause(mut self, limit: Duration) -> Self {
        self.longest_pause = limit;
        self
    }

    /// Sets how often the source is asked to confirm settlements; every second by default.
    #[must_use]
    pub fn confirm_every(mut self, interval: Duration) -> Self {
        self.confirm_every = interval;
        self
    }

    pub(super) fn check(&self) -> Result<(), ConsumeError> {
        let times = [
            ("stall_after", self.stall_after),
            ("longest_pause", self.longest_pause),
            ("confirm_every", self.confirm_every),
        ];
        if self.held == Some(0) {
            return Err(ConsumeError::Zero("held"));
        }
        if self.held_bytes == 0 {
            return Err(ConsumeError::Zero("held_bytes"));
        }
        match times.into_iter().find(|(_, time)| time.is_zero()) {
            Some((name, _)) => Err(ConsumeError::Zero(name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_grows_with_the_concurrency() {
        let usual = |concurrency| IntakeSettings::new().most_held(concurrency);
        assert_eq!(
            [1, 256, 1_024, usize::MAX].map(usual),
            [2_048, 4_096, 8_192, 8_192]
        );
        assert_eq!(IntakeSettings::new().held(1).most_held(1_024), 1);
    }
}
