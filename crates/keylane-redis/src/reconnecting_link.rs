//! A connection that connects again after it has broken.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_connector::lock;
use redis::cmd;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use crate::error::RedisError;
use crate::link::Link;
use crate::server::Redis;

/// A connection that was idle for this long is tested before it is used again: its server may have
/// been restarted.
const IDLE: Duration = Duration::from_millis(100);

/// A connection for callers that come and go. It connects when it is first needed, and again after
/// it has broken. A command that was in progress then has failed, and may have been executed.
///
/// A connection does not work outside its runtime when that has ended, or stands still. So each
/// runtime has its own, and waits for no other one.
pub(crate) struct ReconnectingLink {
    redis: Redis,
    places: Mutex<Vec<Place>>,
}

/// A runtime, and its connection with the time of its last use.
struct Place {
    runtime: Id,
    slot: Arc<Slot>,
}

type Slot = tokio::sync::Mutex<Option<(Link, Instant)>>;

impl Place {
    /// Whether no caller is there, and no connection of a runtime that goes on. All handles are
    /// made under the lock of the places.
    fn is_over(&self) -> bool {
        let slot = self.slot.try_lock();
        Arc::strong_count(&self.slot) == 1
            && slot.is_ok_and(|slot| slot.as_ref().is_none_or(|(link, _)| link.is_over()))
    }
}

impl ReconnectingLink {
    pub(crate) fn new(redis: Redis) -> Self {
        Self {
            redis,
            places: Mutex::default(),
        }
    }

    /// Returns the servers as errors name them.
    pub(crate) fn place(&self) -> Arc<str> {
        self.redis.place()
    }

    /// Returns the place of this runtime.
    fn slot(&self) -> Arc<Slot> {
        let runtime = Handle::current().id();
        let mut places = lock(&self.places);
        places.retain(|place| !place.is_over());
        if let Some(place) = places.iter().find(|place| place.runtime == runtime) {
            return Arc::clone(&place.slot);
        }
        let slot = Arc::default();
        places.push(Place {
            runtime,
            slot: Arc::clone(&slot),
        });
        slot
    }

    /// Returns the current connection of this runtime, or a new one. Callers at the same time share
    /// it.
    async fn link(&self) -> Result<Link, RedisError> {
        let slot = self.slot();
        let mut slot = slot.lock().await;
        let now = Instant::now();
        if let Some((mut link, used_at)) = slot.take()
            && (now < used_at + IDLE || link.ask::<()>(&cmd("PING")).await.is_ok())
        {
            *slot = Some((link.clone(), now));
            return Ok(link);
        }
        let new = self.redis.connect().await?;
        *slot = Some((new.clone(), now));
        Ok(new)
    }

    /// Runs a call with the connection. If it fails because the connection broke, the next caller
    /// gets a new one.
    pub(crate) async fn with<T>(
        &self,
        call: impl AsyncFnOnce(&mut Link) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let mut link = self.link().await?;
        let answer = call(&mut link).await.map_err(|error| link.named(error));
        self.look_at(&answer).await;
        answer
    }

    /// Runs a call that does no harm if it is executed twice. If its connection is dropped, it is
    /// run once more, with a new one: a server, or a network, closes connections that are idle.
    pub(crate) async fn repeat<T, F>(&self, call: impl Fn(Link) -> F) -> Result<T, RedisError>
    where
        F: Future<Output = Result<T, RedisError>>,
    {
        let run = async |link: Link| {
            let answer = call(link.clone()).await;
            answer.map_err(|error| link.named(error))
        };
        let answer = run(self.link().await?).await;
        self.look_at(&answer).await;
        match answer {
            Err(error) if error.is_dropped() => {
                let answer = run(self.link().await?).await;
                self.look_at(&answer).await;
                answer
            }
            answer => answer,
        }
    }

    /// Gives a connection up that has broken.
    async fn look_at<T>(&self, answer: &Result<T, RedisError>) {
        if let Err(error) = answer
            && error.breaks_connection()
        {
            // Another caller may have connected again meanwhile. Then it connects once more, which
            // is rare and does no harm.
            *self.slot().lock().await = None;
        }
    }
}
