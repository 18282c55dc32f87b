//! The builder of a rate.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use keylane_connector::ConfigError;

use super::SharedRate;
use super::bucket::Borrowing;
use super::figures::RateFigures;
use super::limits::Limits;
use super::policy::WhenAway;
use super::server::Server;
use super::shared::Shared;
use super::spec::Quota;
use crate::names;
use crate::reconnecting_link::ReconnectingLink;
use crate::server::Redis;

/// The longest time for which a permit may be kept.
const LONGEST_KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// Builds a [`SharedRate`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_redis::{Quota, Redis, SharedRate};
///
/// # fn main() -> Result<(), keylane_redis::ConfigError> {
/// let redis = Redis::at("redis://redis.internal:6379")?;
/// let rate = SharedRate::builder(&redis, "partner-calls")
///     .total(Quota::per_second(10_000))
///     .borrow(200)
///     .keep(Duration::from_millis(500))
///     .build()?;
/// # let _ = rate;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing before `build`"]
#[derive(Clone)]
pub struct SharedRateBuilder {
    redis: Redis,
    name: Bytes,
    per_key: Option<Quota>,
    total: Option<Quota>,
    borrowing: Borrowing,
    when_away: WhenAway,
}

impl SharedRate {
    /// Begins to build a rate of this name.
    pub fn builder(redis: &Redis, name: impl Into<Bytes>) -> SharedRateBuilder {
        SharedRateBuilder {
            redis: redis.clone(),
            name: name.into(),
            per_key: None,
            total: None,
            borrowing: Borrowing {
                most: 10,
                keep: Duration::from_secs(1),
            },
            when_away: WhenAway::default(),
        }
    }
}

impl SharedRateBuilder {
    /// Sets the rate for each key. Without it all keys are one.
    pub fn per_key(mut self, rate: Quota) -> Self {
        self.per_key = Some(rate);
        self
    }

    /// Sets the rate over all keys.
    pub fn total(mut self, rate: Quota) -> Self {
        self.total = Some(rate);
        self
    }

    /// Limits how many permits of a key this process borrows ahead; 10 by default. With 0 it
    /// borrows none. Without a rate per key it limits the borrowed permits in total. The process
    /// borrows no more than it has used lately, within the time for which permits are kept, and
    /// none for a key that is used for the first time.
    pub fn borrow(mut self, most: u32) -> Self {
        self.borrowing.most = most;
        self
    }

    /// Sets how long a permit may be used after the request for it; 1 second by default, and a day
    /// at most. Later it is lost. This is also how long the server may take to answer, so it must
    /// be longer than the server needs.
    pub fn keep(mut self, time: Duration) -> Self {
        self.borrowing.keep = time;
        self
    }

    /// Sets what happens while the server is away; [`WhenAway::Stop`] by default.
    pub fn when_away(mut self, policy: WhenAway) -> Self {
        self.when_away = policy;
        self
    }

    /// Builds the rate. It connects at its first use, not before.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if the name is empty or has braces with no text between them, if
    /// there is no rate, if a rate is zero or too large, or if another setting is zero that must
    /// not be.
    pub fn build(self) -> Result<SharedRate, ConfigError> {
        names::check("name", &self.name)?;
        if self.per_key.is_none() && self.total.is_none() {
            return Err(ConfigError::new("total", "or `per_key` must be set"));
        }
        if self.borrowing.keep.is_zero() {
            return Err(ConfigError::zero("keep"));
        }
        if self.borrowing.keep > LONGEST_KEEP {
            return Err(ConfigError::new("keep", "is too large"));
        }
        let processes = match self.when_away {
            WhenAway::LocalShare { processes: 0 } => return Err(ConfigError::zero("processes")),
            WhenAway::LocalShare { processes } => processes,
            WhenAway::Stop => 1,
        };
        let limits = Limits::new(
            self.per_key.map(|rate| rate.limit("per_key")).transpose()?,
            self.total.map(|rate| rate.limit("total")).transpose()?,
            processes,
        );
        let server = Server::new(ReconnectingLink::new(self.redis), &self.name, limits);
        let figures = RateFigures::new(&self.name);
        let shared = Shared::new(server, limits, self.borrowing, self.when_away, figures);
        Ok(SharedRate::new(self.name, shared))
    }
}

impl fmt::Debug for SharedRateBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRateBuilder")
            .field("name", &self.name)
            .field("per_key", &self.per_key)
            .field("total", &self.total)
            .field("borrowing", &self.borrowing)
            .field("when_away", &self.when_away)
            .finish_non_exhaustive()
    }
}
