//! What the builder decided, checked and complete.

use std::time::Duration;

use keylane_lanes::{
    AtLimit, BatchRules, CoalesceRules, Gcra, PlanRules, Rules, SequenceRules, Survivor,
};
use keylane_rt::Arc;
use keylane_rt::clock::Instant;
use keylane_source::lease::LaneLeases;

use crate::adaptive::Adaptive;
use crate::discipline::{Delayed, Discipline, How};
use crate::letter::{OnExhausted, Sink};
use crate::observe::trace::ShowKey;
use crate::rate::Rate;
use crate::retry::{Retry, RetryBudget};

/// The policy for a message that meets a lane at its capacity.
///
/// It affects only that key: messages of other keys are accepted as before.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overflow {
    /// The senders of that key wait until their lane has room. The default.
    #[default]
    Wait,
    /// The senders of that key get `LaneFull` with their message.
    Reject,
    /// The oldest message that waits behind the head is settled as dropped, for the new one. With a
    /// capacity of 1 nothing waits behind the head, and the new one itself is dropped.
    DropOldest,
    /// The new message goes to the dead-letter sink, with `Failure::LaneFull` and no attempts.
    DeadLetter,
}

pub(crate) struct Settings<K, M, E> {
    pub(crate) name: Option<Box<str>>,
    pub(crate) capacity: usize,
    pub(crate) capacity_bytes: Option<usize>,
    pub(crate) stalled_capacity: usize,
    pub(crate) lane_capacity: usize,
    pub(crate) overflow: Overflow,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) adaptive: Option<Adaptive>,
    pub(crate) retry: Option<Retry<E>>,
    pub(crate) retry_budget: Option<RetryBudget>,
    pub(crate) on_exhausted: OnExhausted<K, M, E>,
    /// Whether `on_exhausted` was set, and is not only the default.
    pub(crate) names_exhausted: bool,
    pub(crate) sink: Option<Sink<K, M, E>>,
    /// Where the leases of lanes come from.
    pub(crate) leases: Option<Arc<dyn LaneLeases<K>>>,
    /// How to keep a message for another attempt, where one may be needed.
    pub(crate) keep: Option<fn(&M) -> M>,
    pub(crate) quantum: u32,
    /// Attempts of all keys together.
    pub(crate) rate: Option<Rate>,
    /// Classes of priority; 1 is none.
    pub(crate) classes: u8,
    /// Settlements a runner may hold back before it returns their room.
    pub(crate) tally: u32,
    pub(crate) stuck_after: Duration,
    pub(crate) show_key: Option<ShowKey<K>>,
    /// Most events that wait for one subscriber.
    pub(crate) event_capacity: usize,
    pub(crate) discipline: Discipline<K, M>,
    pub(crate) rate_per_key: Option<Gcra>,
    pub(crate) batch: Option<BatchRules>,
    pub(crate) delayed: Delayed,
    /// Whether messages may expire.
    pub(crate) expires: bool,
}

/// How to give the answer of one message to several receipts.
pub(crate) struct Share<O, E> {
    pub(crate) answer: fn(&O) -> O,
    pub(crate) failure: fn(&E) -> E,
}

impl<K, M, E> Settings<K, M, E> {
    /// What lanes decide by. `shares`: messages that do not run get the answer of the one that
    /// does.
    pub(crate) fn rules(&self, shares: bool, epoch: Instant) -> Rules {
        Rules {
            capacity: self.lane_capacity,
            at_limit: match self.overflow {
                Overflow::Wait | Overflow::Reject => AtLimit::Park,
                Overflow::DropOldest => AtLimit::DropOldest,
                Overflow::DeadLetter => AtLimit::Refuse,
            },
            plan: self.plan(shares),
            rate: self.rate_per_key,
            expires: self.expires,
            epoch,
        }
    }

    /// Whether a message of a lane settles only after those before it have: it is never dropped,
    /// declined or merged while it waits.
    pub(crate) fn settles_in_turn(&self) -> bool {
        matches!(self.discipline, Discipline::Fifo)
            && !self.expires
            && matches!(self.overflow, Overflow::Wait | Overflow::Reject)
    }

    fn plan(&self, shares: bool) -> PlanRules {
        match (&self.discipline, self.batch) {
            (Discipline::Fifo, None) => PlanRules::Fifo,
            (Discipline::Fifo, Some(batch)) => PlanRules::Batch(batch),
            (Discipline::Coalesce(coalesce), _) => PlanRules::Coalesce(CoalesceRules {
                survivor: match coalesce.how {
                    How::KeepFirst => Survivor::First,
                    How::KeepLatest => Survivor::Latest,
                    How::Merge(_) => Survivor::Merged,
                },
                shares,
            }),
            (Discipline::Sequence(sequencing), _) => PlanRules::Sequence(SequenceRules {
                mode: sequencing.mode,
                start: sequencing.start,
                early: sequencing.early,
                patience: sequencing.patience,
                on_gap: sequencing.on_gap,
                is_stored: sequencing.versions.store.is_some(),
            }),
        }
    }
}

impl<K, M, E> std::fmt::Debug for Settings<K, M, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("name", &self.name)
            .field("capacity", &self.capacity)
            .field("capacity_bytes", &self.capacity_bytes)
            .field("stalled_capacity", &self.stalled_capacity)
            .field("lane_capacity", &self.lane_capacity)
            .field("overflow", &self.overflow)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("adaptive", &self.adaptive)
            .field("retry", &self.retry)
            .field("on_exhausted", &self.on_exhausted)
            .field("quantum", &self.quantum)
            .field("rate", &self.rate)
            .field("classes", &self.classes)
            .field("leased", &self.leases.is_some())
            .finish_non_exhaustive()
    }
}

impl<K, M, E> Default for Settings<K, M, E> {
    fn default() -> Self {
        Self {
            name: None,
            capacity: 65_536,
            capacity_bytes: None,
            stalled_capacity: 65_536,
            lane_capacity: 1_024,
            overflow: Overflow::Wait,
            attempt_timeout: None,
            adaptive: None,
            retry: None,
            retry_budget: None,
            on_exhausted: OnExhausted::Discard,
            names_exhausted: false,
            sink: None,
            leases: None,
            keep: None,
            quantum: 16,
            rate: None,
            classes: 1,
            tally: 32,
            stuck_after: Duration::from_secs(1),
            show_key: None,
            discipline: Discipline::Fifo,
            rate_per_key: None,
            batch: None,
            delayed: Delayed::Wait,
            expires: false,
            event_capacity: 1_024,
        }
    }
}
