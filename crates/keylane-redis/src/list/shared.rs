//! What a queue and its sources share.

use std::fmt;
use std::sync::LazyLock;

use redis::Script;

use super::keys::{Keys, WorkerKeys};
use super::script::{Call, EXPIRE};
use super::settings::Settings;
use crate::error::RedisError;
use crate::link::Link;
use crate::reconnecting_link::ReconnectingLink;
use crate::server::Redis;

pub(super) struct Shared {
    pub(super) redis: Redis,
    pub(super) settings: Settings,
    pub(super) keys: Keys,
    /// The connection of all calls except those of the sources.
    pub(super) link: ReconnectingLink,
}

impl Shared {
    pub(super) fn new(redis: Redis, settings: Settings) -> Self {
        Self {
            keys: Keys::new(&settings.list),
            link: ReconnectingLink::new(redis.clone()),
            redis,
            settings,
        }
    }

    pub(super) fn call(&self, script: &'static LazyLock<Script>) -> Call {
        Call::new(script, &self.keys)
    }

    /// Creates a call for a worker with these keys.
    pub(super) fn call_of(&self, script: &'static LazyLock<Script>, worker: &WorkerKeys) -> Call {
        Call::of(script, &self.keys, worker, [])
    }

    /// Gives back the elements of this worker, and frees this key if the worker has it. Returns
    /// `None` if the worker has its lease.
    pub(super) async fn expire(
        &self,
        link: &mut Link,
        worker: &str,
        key: &[u8],
    ) -> Result<Option<u64>, RedisError> {
        let call = self.call_of(&EXPIRE, &self.keys.of(worker));
        let back: i64 = call.arg(worker).arg(key).run(link).await?;
        Ok(u64::try_from(back).ok())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListQueue")
            .field("redis", &self.redis)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
