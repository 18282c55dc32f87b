//! The settings of a candidate.

use std::time::Duration;

use keylane_leases::{LONGEST_TTL, SHORTEST_TTL};

use crate::error::CandidateError;

/// What a new leader does when the one before it was lost: killed, paused, or cut off.
///
/// All candidates of an election must have the same setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It starts at once. The old leader has dropped its work, by its own clock; what it had sent
    /// before may still arrive. So each write carries the token, and its target refuses lower ones.
    Fenced,
    /// It waits so long after its election, and then starts: for targets that compare no token.
    /// Choose more than what the old leader has sent can take to arrive, and more than its
    /// `hand_over` may take.
    Wait(Duration),
}

/// The longest limit: a time and `Duration::MAX` have no sum.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The settings of a candidate, checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) rank: u16,
    pub(crate) lost: Lost,
    pub(crate) ttl: Duration,
    /// How often a candidate looks, and is entered again: a third of the time to live, unless set.
    pub(crate) look_every: Option<Duration>,
    pub(crate) prepare_limit: Duration,
    pub(crate) inaugurate_limit: Duration,
    pub(crate) stop_limit: Duration,
    pub(crate) hand_over_limit: Duration,
    pub(crate) retry: Duration,
    pub(crate) longest_pause: Duration,
}

impl Settings {
    pub(crate) fn new() -> Self {
        Self {
            rank: 100,
            lost: Lost::Fenced,
            ttl: Duration::from_secs(10),
            look_every: None,
            prepare_limit: Duration::from_secs(10),
            inaugurate_limit: Duration::from_secs(30),
            stop_limit: Duration::from_secs(10),
            hand_over_limit: Duration::from_secs(10),
            retry: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
        }
    }

    /// Returns these settings with limits that a clock can reach.
    pub(crate) fn checked(mut self) -> Result<Self, CandidateError> {
        self.check()?;
        for limit in [
            &mut self.prepare_limit,
            &mut self.inaugurate_limit,
            &mut self.stop_limit,
            &mut self.hand_over_limit,
            &mut self.retry,
            &mut self.longest_pause,
        ] {
            *limit = FAR.min(*limit);
        }
        if let Lost::Wait(grace) = &mut self.lost {
            *grace = FAR.min(*grace);
        }
        Ok(self)
    }

    fn check(&self) -> Result<(), CandidateError> {
        if !(SHORTEST_TTL..=LONGEST_TTL).contains(&self.ttl) {
            return Err(CandidateError::Ttl(self.ttl));
        }
        let limits = [
            ("prepare_limit", self.prepare_limit),
            ("inaugurate_limit", self.inaugurate_limit),
            ("stop_limit", self.stop_limit),
            ("hand_over_limit", self.hand_over_limit),
            ("retry_after", self.retry),
        ];
        match limits.into_iter().find(|(_, limit)| limit.is_zero()) {
            Some((setting, _)) => Err(CandidateError::Zero(setting)),
            None => Ok(()),
        }
    }

    /// Returns how often a candidate looks, and is entered again.
    pub(crate) fn look_every(&self) -> Duration {
        self.look_every.unwrap_or(self.ttl / 3)
    }

    /// Returns for how long a candidate is entered.
    pub(crate) fn entered_for(&self) -> Duration {
        self.ttl.max(self.look_every() * 3)
    }

    /// Returns the rest of a term below which it is doubtful. A renewal is due when a rest of 0.4
    /// to 0.57 of the time to live is left.
    pub(crate) fn doubtful_below(&self) -> Duration {
        self.ttl * 3 / 10
    }

    /// Returns the pause after so many failures in a row.
    pub(crate) fn pause_after(&self, failures: u32) -> Duration {
        let pause = self
            .retry
            .saturating_mul(1 << failures.saturating_sub(1).min(16));
        pause.min(self.longest_pause.max(self.retry))
    }

    /// Returns the pause after a call to the store that has failed.
    pub(crate) fn pause(&self) -> Duration {
        (self.ttl / 30).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }
}
