//! The settings of the builder for lanes, which are the same for all lanes of a dispatcher.

use std::time::Duration;

use keylane_rt::clock::{self, Instant};

use crate::Gcra;
use crate::sequence::{Mode, OnGap, Start};

/// The wheel's resolution: a timer may go off early by less than this.
pub const TICK: Duration = Duration::from_millis(1);

/// Longer than any wait whose end matters.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The rules that all lanes of a dispatcher decide by.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The maximum number of messages of one key, the head included.
    pub capacity: usize,
    /// The behaviour of a full lane.
    pub at_limit: AtLimit,
    /// The discipline.
    pub plan: PlanRules,
    /// The rate at which handlers of one key start.
    pub rate: Option<Gcra>,
    /// Whether messages may expire.
    pub expires: bool,
    /// The epoch: times that are stored as a `u64` are nanoseconds since then.
    pub epoch: Instant,
}

/// The behaviour of an offer in a lane that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtLimit {
    /// Park all the same: the senders see that the lane is full and hold back.
    Park,
    /// Make room by giving up the oldest parked message.
    DropOldest,
    /// Give up the new message.
    Refuse,
}

/// The rule for which messages of a lane may start, and in which order.
#[derive(Clone, Debug)]
pub enum PlanRules {
    /// First in, first out.
    Fifo,
    /// One message waits at most.
    Coalesce(CoalesceRules),
    /// In the order of their versions.
    Sequence(SequenceRules),
    /// Several at once.
    Batch(BatchRules),
}

/// The rule for a message that meets one that waits.
#[derive(Clone, Copy, Debug)]
pub struct CoalesceRules {
    /// The message of a key that stands for the others.
    pub survivor: Survivor,
    /// Whether messages that do not run get the answer of the one that does.
    pub shares: bool,
}

/// The choice between two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivor {
    /// The one that came first.
    First,
    /// The one that came last.
    Latest,
    /// Both, as one.
    Merged,
}

/// The order of versions.
#[derive(Clone, Copy, Debug)]
pub struct SequenceRules {
    /// The rule for versions that follow each other.
    pub mode: Mode,
    /// The start of a key.
    pub start: Start,
    /// The maximum number of messages that wait for a missing version.
    pub early: usize,
    /// The time that a lane waits for a missing version.
    pub patience: Duration,
    /// The behaviour when a version has not come in time.
    pub on_gap: OnGap,
    /// Whether a store outside keeps the versions.
    pub is_stored: bool,
}

impl SequenceRules {
    /// Returns whether a version that does not come stops its key.
    pub fn halts(&self) -> bool {
        self.on_gap == OnGap::Halt
    }

    /// Returns whether versions may be missing.
    pub fn has_gaps(&self) -> bool {
        self.mode == Mode::Contiguous
    }
}

/// The rule for batches of messages of one key.
#[derive(Clone, Copy, Debug)]
pub struct BatchRules {
    /// The maximum number of messages of a batch.
    pub max: usize,
    /// The time that a batch waits to be full.
    pub linger: Duration,
}

impl Rules {
    /// Returns whether lanes are asked for their next message: it is not always the oldest, or not
    /// always now.
    pub fn has_discipline(&self) -> bool {
        self.rate.is_some() || self.expires || !matches!(self.plan, PlanRules::Fifo)
    }

    /// Returns whether a message that may start now goes into the ready queue itself. Where more
    /// can happen to it while it waits for a runner, its lane goes there instead, and is asked when
    /// a runner takes it.
    pub fn starts_at_once(&self) -> bool {
        self.rate.is_none() && matches!(self.plan, PlanRules::Sequence(_))
    }

    /// Returns whether the first message of a lane goes into the ready queue itself. A runner that
    /// takes it lets the lane [combine](super::Lane::rejoin) it with those that came after it.
    ///
    /// Not with an exact limit, where a message that waits may be dropped for another one.
    pub fn enters(&self) -> bool {
        let is_asked_later = match &self.plan {
            PlanRules::Fifo => false,
            // If the first one expires, those that came since are to be merged without it.
            PlanRules::Coalesce(coalesce) => coalesce.survivor == Survivor::Merged && self.expires,
            PlanRules::Batch(batch) => !batch.linger.is_zero(),
            PlanRules::Sequence(_) => true,
        };
        !is_asked_later && self.rate.is_none() && self.at_limit == AtLimit::Park
    }

    /// Returns whether the lane decides again when a runner takes its first message.
    pub fn rejoins(&self) -> bool {
        matches!(self.plan, PlanRules::Coalesce(_) | PlanRules::Batch(_))
    }

    /// Returns whether the next start in a lane depends on the time, if no message in it is
    /// delayed.
    pub fn asks_the_time(&self) -> bool {
        match &self.plan {
            PlanRules::Fifo | PlanRules::Coalesce(_) => self.rate.is_some() || self.expires,
            PlanRules::Batch(batch) => {
                self.rate.is_some() || self.expires || !batch.linger.is_zero()
            }
            PlanRules::Sequence(_) => true,
        }
    }

    /// Returns whether the time decides how a lane goes on when its head has settled, if no message
    /// in it is delayed.
    pub fn advances_by_the_time(&self) -> bool {
        self.rate.is_some() || matches!(self.plan, PlanRules::Sequence(_))
    }

    /// Returns whether the senders of a full lane are held back.
    pub fn has_gates(&self) -> bool {
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

    /// Returns the rules of sequencing lanes, if lanes sequence.
    pub fn sequence(&self) -> Option<&SequenceRules> {
        match &self.plan {
            PlanRules::Sequence(sequence) => Some(sequence),
            _ => None,
        }
    }

    /// Returns the rules of batches, if lanes batch.
    pub fn batch(&self) -> Option<&BatchRules> {
        match &self.plan {
            PlanRules::Batch(batch) => Some(batch),
            _ => None,
        }
    }

    /// Returns how many messages make a batch full: a lane may have room for fewer than `max`.
    pub fn full_batch(&self, batch: &BatchRules) -> usize {
        batch.max.min(self.capacity)
    }

    /// Returns how long this many parked messages wait for more, to be one batch.
    pub fn linger(&self, parked: usize) -> Option<Duration> {
        let batch = self.batch()?;
        let waits = !batch.linger.is_zero() && parked < self.full_batch(batch);
        waits.then_some(batch.linger)
    }

    /// Returns a moment as nanoseconds since the epoch.
    pub fn stamp(&self, now: Instant) -> u64 {
        clock::nanos_since(self.epoch, now)
    }

    /// Returns nanoseconds since the epoch as a moment.
    pub fn moment(&self, stamp: u64, now: Instant) -> Instant {
        let moment = self.epoch.checked_add(Duration::from_nanos(stamp));
        moment.unwrap_or(now + FAR)
    }
}

/// Returns a time that is later, and exists.
pub fn later(from: Instant, by: Duration) -> Instant {
    from.checked_add(by).unwrap_or(from + FAR)
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use keylane_rt::clock;

    use super::*;

    fn rules(plan: PlanRules) -> Rules {
        Rules {
            capacity: 4,
            at_limit: AtLimit::Park,
            plan,
            rate: None,
            expires: false,
            epoch: clock::now(),
        }
    }

    fn coalesce(survivor: Survivor, shares: bool) -> PlanRules {
        PlanRules::Coalesce(CoalesceRules { survivor, shares })
    }

    fn sequence(mode: Mode, on_gap: OnGap) -> SequenceRules {
        SequenceRules {
            mode,
            start: Start::FirstSeen,
            early: 1,
            patience: TICK,
            on_gap,
            is_stored: false,
        }
    }

    fn batch(max: usize) -> BatchRules {
        BatchRules {
            max,
            linger: Duration::ZERO,
        }
    }

    #[test]
    fn a_lane_is_asked_where_more_than_the_order_decides() {
        let (skips, rate) = (sequence(Mode::Contiguous, OnGap::Skip), Gcra::new(1, 1));
        let fifo = || rules(PlanRules::Fifo);
        let rated = |plan| Rules {
            rate: Some(rate),
            ..rules(plan)
        };
        let expires = Rules {
            expires: true,
            ..fifo()
        };
        let answers = |rules: Rules| (rules.has_discipline(), rules.starts_at_once());
        assert_eq!(answers(fifo()), (false, false));
        assert_eq!(answers(expires), (true, false));
        assert_eq!(answers(rated(PlanRules::Fifo)), (true, false));
        assert_eq!(answers(rules(PlanRules::Batch(batch(2)))), (true, false));
        assert_eq!(answers(rules(PlanRules::Sequence(skips))), (true, true));
        assert_eq!(answers(rated(PlanRules::Sequence(skips))), (true, false));
    }

    #[test]
    fn the_first_message_enters_where_nothing_can_happen_to_it_before_a_runner_takes_it() {
        let answers = |rules: &Rules| (rules.enters(), rules.rejoins());
        let keeps = |survivor| answers(&rules(coalesce(survivor, true)));
        assert_eq!(keeps(Survivor::First), (true, true));
        assert_eq!(keeps(Survivor::Latest), (true, true));
        assert_eq!(keeps(Survivor::Merged), (true, true));
        let expires = Rules {
            expires: true,
            ..rules(coalesce(Survivor::Merged, true))
        };
        assert!(!expires.enters(), "the first one may go");
        assert_eq!(answers(&rules(PlanRules::Fifo)), (true, false));
        assert_eq!(answers(&rules(PlanRules::Batch(batch(2)))), (true, true));
        let lingers = BatchRules {
            linger: TICK,
            ..batch(2)
        };
        assert_eq!(answers(&rules(PlanRules::Batch(lingers))), (false, true));
        let skips = sequence(Mode::Contiguous, OnGap::Skip);
        let sequences = rules(PlanRules::Sequence(skips));
        assert_eq!(answers(&sequences), (false, false));
        let rated = Rules {
            rate: Some(Gcra::new(1, 1)),
            ..rules(PlanRules::Fifo)
        };
        assert!(!rated.enters());
        for at_limit in [AtLimit::DropOldest, AtLimit::Refuse] {
            let exact = Rules {
                at_limit,
                ..rules(PlanRules::Batch(batch(2)))
            };
            assert!(!exact.enters(), "it may have to go for another");
        }
    }

    #[test]
    fn the_time_is_read_where_it_matters() {
        let rated = |plan| Rules {
            rate: Some(Gcra::new(1, 1)),
            ..rules(plan)
        };
        let expires = |plan| Rules {
            expires: true,
            ..rules(plan)
        };
        let answers = |rules: Rules| (rules.asks_the_time(), rules.advances_by_the_time());
        let lingers = BatchRules {
            linger: TICK,
            ..batch(2)
        };
        let plans = || {
            let latest = coalesce(Survivor::Latest, false);
            [PlanRules::Fifo, latest, PlanRules::Batch(batch(2))]
        };
        for plan in plans() {
            assert_eq!(answers(rules(plan)), (false, false));
        }
        for plan in plans() {
            assert_eq!(answers(rated(plan)), (true, true));
        }
        for plan in plans() {
            assert_eq!(answers(expires(plan)), (true, false));
        }
        assert_eq!(answers(rules(PlanRules::Batch(lingers))), (true, false));
        let skips = sequence(Mode::Contiguous, OnGap::Skip);
        assert_eq!(answers(rules(PlanRules::Sequence(skips))), (true, true));
    }

    #[test]
    fn senders_are_held_back_where_a_lane_can_be_full() {
        let gates = |plan| rules(plan).has_gates();
        assert!(gates(PlanRules::Fifo) && gates(coalesce(Survivor::Merged, false)));
        for survivor in [Survivor::First, Survivor::Latest] {
            assert!(gates(coalesce(survivor, true)), "receipts are kept");
            assert!(!gates(coalesce(survivor, false)), "one waits at most");
        }
        for at_limit in [AtLimit::DropOldest, AtLimit::Refuse] {
            let rules = Rules {
                at_limit,
                ..rules(PlanRules::Fifo)
            };
            assert!(!rules.has_gates());
        }
    }

    #[test]
    fn the_rules_of_a_plan_are_those_of_its_own() {
        let rules = rules(PlanRules::Batch(batch(9)));
        let max = |batch: &BatchRules| batch.max;
        assert_eq!(
            (rules.batch().map(max), rules.sequence().is_some()),
            (Some(9), false)
        );
        assert_eq!(rules.full_batch(&batch(9)), 4, "there is no room for more");
        assert_eq!(rules.full_batch(&batch(3)), 3);
        assert_eq!(rules.linger(1), None, "it does not wait");
        let halts = sequence(Mode::Monotonic, OnGap::Halt);
        assert!(halts.halts() && !halts.has_gaps());
        let skips = sequence(Mode::Contiguous, OnGap::Skip);
        assert!(!skips.halts() && skips.has_gaps());
        let rules = self::rules(PlanRules::Sequence(skips));
        assert!(rules.batch().is_none() && rules.sequence().is_some());
    }

    #[test]
    fn a_batch_waits_until_it_is_full() {
        let lingers = BatchRules {
            linger: TICK,
            ..batch(9)
        };
        let rules = rules(PlanRules::Batch(lingers));
        let waits = [0, 3, 4, 9].map(|parked| rules.linger(parked));
        assert_eq!(waits, [Some(TICK), Some(TICK), None, None]);
    }

    #[test]
    fn a_moment_has_a_stamp_and_is_never_beyond_all_time() {
        let rules = rules(PlanRules::Fifo);
        let now = rules.epoch + Duration::from_nanos(7);
        assert_eq!(rules.stamp(now), 7);
        assert_eq!(rules.moment(7, rules.epoch), now);
        let far = now.checked_add(Duration::from_millis(u64::MAX));
        assert_eq!(far.map_or(u64::MAX, |far| rules.stamp(far)), u64::MAX);
        assert_eq!(later(now, TICK), now + TICK);
        let ten_years = Duration::from_secs(315_360_000);
        assert_eq!(later(now, Duration::MAX), now + ten_years);
    }
}
