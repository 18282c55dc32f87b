//! What the builder decided about lanes. The same for all lanes of a dispatcher.

use std::time::Duration;

use crate::clock::Instant;
use crate::discipline::{Mode, OnGap, Start};
use crate::rate::Gcra;

/// The wheel's resolution: a timer may go off early by less than this.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Longer than any wait whose end matters.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The rules of a lane with a discipline.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Most messages of one key, the head included.
    pub(crate) capacity: usize,
    pub(crate) at_limit: AtLimit,
    pub(crate) plan: PlanRules,
    /// How often handlers of one key start.
    pub(crate) rate: Option<Gcra>,
    /// Whether messages may expire.
    pub(crate) expires: bool,
    /// Times are nanoseconds since then, where a word must do.
    pub(crate) epoch: Instant,
}

/// What an offer does in a lane that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtLimit {
    /// Park all the same: the senders see that the lane is full and hold back.
    Park,
    /// Make room by giving up the oldest parked message.
    DropOldest,
    /// Give up the new one.
    Refuse,
}

/// Which messages of a lane may start, and in which order.
#[derive(Clone, Debug)]
pub(crate) enum PlanRules {
    /// First in, first out.
    Fifo,
    /// One message waits at most.
    Coalesce(CoalesceRules),
    /// In the order of their versions.
    Sequence(SequenceRules),
    /// Several at once.
    Batch(BatchRules),
}

/// What becomes of a message that meets one that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoalesceRules {
    pub(crate) survivor: Survivor,
    /// Whether those that do not run get the answer of the one that does.
    pub(crate) shares: bool,
}

/// Which of two messages is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survivor {
    First,
    Latest,
    /// Both, as one.
    Merged,
}

/// How versions are put in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceRules {
    pub(crate) mode: Mode,
    pub(crate) start: Start,
    /// Most messages that wait for a missing version.
    pub(crate) early: usize,
    /// How long a missing version is waited for.
    pub(crate) patience: Duration,
    pub(crate) on_gap: OnGap,
    /// Whether a store outside keeps the versions.
    pub(crate) is_stored: bool,
}

impl SequenceRules {
    /// Whether a version that does not come stops its key.
    pub(crate) fn halts(&self) -> bool {
        self.on_gap == OnGap::Halt
    }

    /// Whether versions may be missing.
    pub(crate) fn has_gaps(&self) -> bool {
        self.mode == Mode::Contiguous
    }
}

/// How messages of one key are put together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchRules {
    pub(crate) max: usize,
    pub(crate) linger: Duration,
}

impl Rules {
    /// Whether lanes are asked for their next message: it is not always the oldest, or not always
    /// now.
    pub(crate) fn has_discipline(&self) -> bool {
        self.rate.is_some() || self.expires || !matches!(self.plan, PlanRules::Fifo)
    }

    /// Whether a message that may start now goes into the ready queue itself. Where more can happen
    /// to it while it waits for a runner, its lane goes there instead, and is asked when a runner
    /// takes it.
    pub(crate) fn starts_early(&self) -> bool {
        self.rate.is_none() && matches!(self.plan, PlanRules::Sequence(_))
    }

    /// Whether what starts next in a lane depends on the time, if no message in it is delayed.
    pub(crate) fn asks_the_time(&self) -> bool {
        match &self.plan {
            PlanRules::Fifo | PlanRules::Coalesce(_) => self.rate.is_some() || self.expires,
            PlanRules::Batch(batch) => {
                self.rate.is_some() || self.expires || !batch.linger.is_zero()
            }
            PlanRules::Sequence(_) => true,
        }
    }

    /// Whether it depends on the time how a lane goes on when its head has settled, if no message
    /// in it is delayed.
    pub(crate) fn advances_by_the_time(&self) -> bool {
        self.rate.is_some() || matches!(self.plan, PlanRules::Sequence(_))
    }

    /// Whether the senders of a full lane are held back.
    pub(crate) fn has_gates(&self) -> bool {
        self.at_limit == AtLimit::Park && !self.holds_two_at_most()
    }

    /// Whether lanes settle what is more than one that runs and one that waits.
    fn holds_two_at_most(&self) -> bool {
        matches!(
            &self.plan,
            PlanRules::Coalesce(CoalesceRules {
                survivor: Survivor::First | Survivor::Latest,
                shares: false,
            })
        )
    }

    /// The rules of sequencing lanes, if they are that.
    pub(crate) fn sequence(&self) -> Option<&SequenceRules> {
        match &self.plan {
            PlanRules::Sequence(sequence) => Some(sequence),
            _ => None,
        }
    }

    pub(crate) fn batch(&self) -> Option<&BatchRules> {
        match &self.plan {
            PlanRules::Batch(batch) => Some(batch),
            _ => None,
        }
    }

    /// Messages that make a batch full: a lane may have room for fewer than are wanted.
    pub(crate) fn full_batch(&self, batch: &BatchRules) -> usize {
        batch.max.min(self.capacity)
    }

    /// A moment as nanoseconds since the epoch.
    pub(crate) fn stamp(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// Nanoseconds since the epoch as a moment.
    pub(crate) fn moment(&self, stamp: u64, now: Instant) -> Instant {
        let moment = self.epoch.checked_add(Duration::from_nanos(stamp));
        moment.unwrap_or(now + FAR)
    }
}

/// A time that is later, and exists.
pub(crate) fn later(from: Instant, by: Duration) -> Instant {
    from.checked_add(by).unwrap_or(from + FAR)
}
