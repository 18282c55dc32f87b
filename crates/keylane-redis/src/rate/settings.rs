//! How a rate is shared.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::SharedRate;
use super::bucket::Borrowing;
use super::limits::Limits;
use super::server::Server;
use super::shared::Shared;
use super::spec::Quota;
use crate::error::ConfigError;
use crate::names;
use crate::server::Redis;

/// Permits are kept no longer.
const LONGEST_KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// What happens while the server cannot be asked.
///
/// That is the case when a call has failed in a way that may pass, or was not answered for as long
/// as permits are kept. It is asked again after 50 milliseconds, and up to each second.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenAway {
    /// Nothing starts, but with permits that were borrowed before.
    #[default]
    Stop,
    /// Each process goes on with its share of the rates: the rate and the burst divided by the
    /// number of processes, and a burst of 1 at least.
    ///
    /// As long as there are no more processes than that, they start no more together than the rates
    /// allow, with a burst of one for each process where that is more. A process begins with its
    /// whole share of the burst, and does not know what it has taken from the server: each change
    /// from one to the other can cost one burst more.
    LocalShare {
        /// How many processes there are, at most.
        processes: u32,
    },
}

/// A [`SharedRate`] that is being set up.
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

impl SharedRateBuilder {
    pub(super) fn new(redis: &Redis, name: Bytes) -> Self {
        Self {
            redis: redis.clone(),
            name,
            per_key: None,
            total: None,
            borrowing: Borrowing {
                most: 10,
                keep: Duration::from_secs(1),
            },
            when_away: WhenAway::default(),
        }
    }

    /// How often something may start for each key. Without it all keys are one.
    pub fn per_key(mut self, rate: Quota) -> Self {
        self.per_key = Some(rate);
        self
    }

    /// How often something may start, whatever its key.
    pub fn total(mut self, rate: Quota) -> Self {
        self.total = Some(rate);
        self
    }

    /// Most permits of a key that this process borrows ahead; 10 unless set, and none with 0.
    /// Without a rate per key it is the most permits in all. It borrows no more than it has used
    /// lately, within the time for which permits are kept, and nothing for a key that is used for
    /// the first time.
    pub fn borrow(mut self, most: u32) -> Self {
        self.borrowing.most = most;
        self
    }

    /// How long a permit may be used after it was asked for; 1 second unless set, and a day at
    /// most. It is lost then. This is also how long the server may take to answer, so it must be
    /// longer than that takes.
    pub fn keep(mut self, time: Duration) -> Self {
        self.borrowing.keep = time;
        self
    }

    /// What happens while the server cannot be asked; [`WhenAway::Stop`] unless set.
    pub fn when_away(mut self, policy: WhenAway) -> Self {
        self.when_away = policy;
        self
    }

    /// The rate. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the name is empty or has braces and nothing between them, if there is no
    /// rate, if one is zero or too large, or if another setting is zero that must not be.
    pub fn build(self) -> Result<SharedRate, ConfigError> {
        names::check("name", &self.name)?;
        if self.per_key.is_none() && self.total.is_none() {
            return Err(ConfigError::Missing("per_key or total"));
        }
        if self.borrowing.keep.is_zero() {
            return Err(ConfigError::Zero("keep"));
        }
        if self.borrowing.keep > LONGEST_KEEP {
            return Err(ConfigError::TooLarge("keep"));
        }
        let processes = match self.when_away {
            WhenAway::LocalShare { processes: 0 } => return Err(ConfigError::Zero("processes")),
            WhenAway::LocalShare { processes } => processes,
            WhenAway::Stop => 1,
        };
        let limits = Limits::new(
            self.per_key.map(|rate| rate.limit("per_key")).transpose()?,
            self.total.map(|rate| rate.limit("total")).transpose()?,
            processes,
        );
        let server = Server::new(self.redis.reconnecting(), &self.name, limits);
        let shared = Shared::new(server, limits, self.borrowing, self.when_away);
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
