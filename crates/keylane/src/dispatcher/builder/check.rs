//! Whether the settings fit: each by itself, and together.

use std::time::Duration;

use keylane_lanes::{CLASSES, OnGap};
use keylane_rt as rt;

use super::settings::Config;
use crate::discipline::{Discipline, Sequence};
use crate::engine::{MOST_LANES, Overflow};
use crate::error::BuildError;
use crate::letter::OnExhausted;

/// Each shard is a lock and a table; more of them than this are of no use.
const MOST_SHARDS: usize = 1 << 16;

/// Settings that other settings exclude or need.
#[derive(Clone, Copy)]
enum Setting {
    Batch,
    Coalesce,
    ExpireAfter,
    HashLanes,
    Sequence,
    ShareAnswers,
    StripedIntake,
}

use Setting::{
    Batch, Coalesce, ExpireAfter, HashLanes, Sequence as Sequenced, ShareAnswers, StripedIntake,
};

/// Pairs of which only one can be set.
const CONFLICTS: [(Setting, Setting); 5] = [
    (Coalesce, Sequenced),
    (Coalesce, Batch),
    // A message of a sequence that is not started in its place would be a gap.
    (Sequenced, Batch),
    (Sequenced, ExpireAfter),
    // Only the router knows which lane a key has while their number changes.
    (StripedIntake, HashLanes),
];

/// Settings that do nothing without another one.
const NEEDS: [(Setting, Setting); 1] = [(ShareAnswers, Coalesce)];

impl Setting {
    fn name(self) -> &'static str {
        match self {
            Batch => "batch",
            Coalesce => "coalesce",
            ExpireAfter => "expire_after",
            HashLanes => "hash_lanes",
            Sequenced => "sequence",
            ShareAnswers => "share_answers",
            StripedIntake => "striped_intake",
        }
    }

    fn is_set<K, M, E>(self, config: &Config<K, M, E>) -> bool {
        match self {
            Batch => config.settings.batch.is_some(),
            Coalesce => matches!(config.settings.discipline, Discipline::Coalesce(_)),
            ExpireAfter => config.lifetime.is_some(),
            HashLanes => config.placing.is_some(),
            Sequenced => config.sequence.is_some(),
            ShareAnswers => config.share.is_some(),
            StripedIntake => config.striped == Some(true),
        }
    }
}

impl<K, M, E> Config<K, M, E> {
    /// The first setting that does not fit.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        self.check_capacities()?;
        self.check_counts()?;
        self.check_times()?;
        self.check_combinations()?;
        self.check_layout()?;
        self.check_sink()
    }

    /// How much is let in.
    fn check_capacities(&self) -> Result<(), BuildError> {
        let settings = &self.settings;
        // The room of stalled messages is given back early, so both together must be countable.
        let most = rt::Semaphore::MAX_PERMITS / 2;
        for (name, value, least) in [
            ("capacity", Some(settings.capacity), 1),
            ("capacity_bytes", settings.capacity_bytes, 1),
            ("lane_capacity", self.lane_capacity, 1),
            ("stalled_capacity", self.stalled_capacity, 0),
        ] {
            match value {
                Some(value) if value < least => return Err(BuildError::Zero(name)),
                Some(value) if value > most => return Err(BuildError::TooLarge(name)),
                _ => {}
            }
        }
        Ok(())
    }

    /// How many at once, and how often.
    fn check_counts(&self) -> Result<(), BuildError> {
        let settings = &self.settings;
        for (name, value) in [
            ("concurrency", self.concurrency),
            ("quantum", settings.quantum as usize),
            ("priority", usize::from(settings.classes)),
            ("batch", settings.batch.map_or(1, |batch| batch.max)),
            ("event_capacity", settings.event_capacity),
        ] {
            if value == 0 {
                return Err(BuildError::Zero(name));
            }
        }
        if usize::from(settings.classes) > CLASSES {
            return Err(BuildError::TooLarge("priority"));
        }
        if let Some(adaptive) = &settings.adaptive {
            adaptive.check()?;
        }
        if let Some(rate) = &settings.rate {
            rate.check("rate")?;
        }
        if let Some(rate) = &self.rate_per_key {
            rate.check("rate_per_key")?;
        }
        Ok(())
    }

    /// How long anything may take.
    fn check_times(&self) -> Result<(), BuildError> {
        let settings = &self.settings;
        let never_expires = self.lifetime.is_some() && !settings.expires;
        for (name, value) in [
            ("stuck_after", Some(settings.stuck_after)),
            ("attempt_timeout", settings.attempt_timeout),
            ("expire_after", never_expires.then_some(Duration::ZERO)),
        ] {
            if value.is_some_and(|value| value.is_zero()) {
                return Err(BuildError::Zero(name));
            }
        }
        self.sequence.as_ref().map_or(Ok(()), Sequence::check)
    }

    /// Settings that exclude each other, or need each other.
    fn check_combinations(&self) -> Result<(), BuildError> {
        for (one, other) in CONFLICTS {
            if one.is_set(self) && other.is_set(self) {
                return Err(BuildError::Conflict(one.name(), other.name()));
            }
        }
        for (one, other) in NEEDS {
            if one.is_set(self) && !other.is_set(self) {
                return Err(BuildError::Needs(one.name(), other.name()));
            }
        }
        Ok(())
    }

    /// How lanes are kept.
    fn check_layout(&self) -> Result<(), BuildError> {
        let lanes = self.placing.as_ref().map(|placing| placing.layout.lanes());
        if lanes.is_some_and(|lanes| lanes > MOST_LANES) {
            return Err(BuildError::TooLarge("hash_lanes"));
        }
        match self.shards {
            Some(shards) if shards > MOST_SHARDS => Err(BuildError::TooLarge("shards")),
            Some(shards) if !shards.is_power_of_two() || shards < 2 => {
                Err(BuildError::Shards(shards))
            }
            _ => Ok(()),
        }
    }

    /// A dead letter needs a sink.
    fn check_sink(&self) -> Result<(), BuildError> {
        let settings = &self.settings;
        let has_sink =
            settings.sink.is_some() || matches!(settings.on_exhausted, OnExhausted::DeadLetter(_));
        let on_gap = self.sequence.as_ref().map(Sequence::on_gap);
        let has_letters =
            settings.overflow == Overflow::DeadLetter || on_gap == Some(OnGap::DeadLetter);
        if has_letters && !has_sink {
            return Err(BuildError::NoDeadLetterSink);
        }
        Ok(())
    }
}
