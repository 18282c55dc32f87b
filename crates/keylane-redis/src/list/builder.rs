//! The builder of a queue.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylane_connector::ConfigError;

use super::config::{ListKey, Settings};
use super::queue::{List, ListQueue};
use crate::names;
use crate::server::Redis;

/// Longer than the life of any worker, and short enough to be added to any time.
const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Builds a [`ListQueue`]. Every setting has a default.
#[derive(Clone, Debug)]
pub struct ListBuilder {
    redis: Redis,
    settings: Settings,
}

impl ListQueue {
    /// Begins to build a queue in this list.
    pub fn builder(redis: &Redis, list: impl Into<Bytes>) -> ListBuilder {
        ListBuilder {
            redis: redis.clone(),
            settings: Settings {
                list: list.into(),
                key: ListKey::none(),
                has_rule: false,
                lease: Duration::from_secs(10),
                most_sent: 100_000,
                most_bytes: 4 << 20,
                is_cyclic: false,
                keeps_letters: false,
                exact_starts: false,
            },
        }
    }
}

impl ListBuilder {
    /// Sets where the key of a plain element is; [none](ListKey::none) by default. All workers of a
    /// list must set the same.
    ///
    /// The first element without a key is logged as a warning, because its order is not kept. If
    /// that is meant, set [`ListKey::none`] here: then it is not logged.
    #[must_use]
    pub fn key(mut self, key: ListKey) -> Self {
        self.settings.key = key;
        self.settings.has_rule = true;
        self
    }

    /// Sets how long a worker may be silent before its elements go back to the list; 10 seconds by
    /// default, and a year at most. The lease is renewed after each third of that.
    ///
    /// It must outlast whatever blocks the runtime, such as a handler that computes without an
    /// await: no renewal is sent meanwhile, and the attempts of a worker without a lease end.
    #[must_use]
    pub fn lease(mut self, ttl: Duration) -> Self {
        self.settings.lease = ttl.min(LONGEST_LEASE);
        self
    }

    /// Limits the elements in the inbox of a worker, which wait there because it handles others of
    /// their keys; 100,000 by default. If the inbox is full, the next such element stays at the
    /// front of the list, and the elements behind it wait.
    #[must_use]
    pub fn most_sent(mut self, most: usize) -> Self {
        self.settings.most_sent = most;
        self
    }

    /// Limits the bytes of elements in any one answer of the server; 4 MiB by default. A single
    /// element may be larger.
    #[must_use]
    pub fn most_bytes(mut self, most: usize) -> Self {
        self.settings.most_bytes = most;
        self
    }

    /// Puts each handled element at the end of the list again, in its original form: for work that
    /// never ends. Elements that are dead-lettered or discarded leave the list.
    #[must_use]
    pub fn cyclic(mut self) -> Self {
        self.settings.is_cyclic = true;
        self
    }

    /// Keeps dead letters in a list beside the queue, for a dispatcher with
    /// `OnExhausted::AtSource`.
    #[must_use]
    pub fn dead_letters(mut self) -> Self {
        self.settings.keeps_letters = true;
        self
    }

    /// Notes each attempt in the server before it starts. Without it the first attempt at an
    /// element needs no note, and the elements of a worker are noted from its death on: a message
    /// that kills its processes gets one attempt more than the limit.
    #[must_use]
    pub fn exact_starts(mut self) -> Self {
        self.settings.exact_starts = true;
        self
    }

    /// Builds the queue. It sends nothing yet.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for a name that is empty, has no clear slot in a cluster, or begins
    /// like the keys beside a list, and for a setting that is zero.
    pub fn build(self) -> Result<ListQueue, ConfigError> {
        let settings = &self.settings;
        names::check("list", &settings.list)?;
        let zeros = [
            ("lease", settings.lease.as_millis() == 0),
            ("most_sent", settings.most_sent == 0),
            ("most_bytes", settings.most_bytes == 0),
        ];
        match zeros.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((name, _)) => Err(ConfigError::zero(name)),
            None => Ok(ListQueue {
                list: Arc::new(List::new(self.redis, self.settings)),
            }),
        }
    }
}
