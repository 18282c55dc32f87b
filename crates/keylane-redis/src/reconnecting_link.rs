//! A connection that connects again after it has broken.

use std::time::Duration;

use redis::cmd;
use tokio::runtime::{Handle, Id};
use tokio::sync::Mutex;
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
/// runtime has its own.
pub(crate) struct ReconnectingLink {
    redis: Redis,
    links: Mutex<Vec<Used>>,
}

/// A connection, with its runtime and the time of its last use.
struct Used {
    link: Link,
    runtime: Id,
    at: Instant,
}

impl ReconnectingLink {
    pub(crate) fn new(redis: Redis) -> Self {
        Self {
            redis,
            links: Mutex::default(),
        }
    }

    /// Returns the current connection of this runtime, or a new one. Callers at the same time share
    /// it.
    async fn link(&self) -> Result<Link, RedisError> {
        let runtime = Handle::current().id();
        let mut links = self.links.lock().await;
        links.retain(|used| !used.link.is_over());
        let now = Instant::now();
        let known = links.iter().position(|used| used.runtime == runtime);
        if let Some(mut used) = known.map(|known| links.swap_remove(known))
            && (now < used.at + IDLE || used.link.ask::<()>(&cmd("PING")).await.is_ok())
        {
            used.at = now;
            let link = used.link.clone();
            links.push(used);
            return Ok(link);
        }
        let link = self.redis.connect().await?;
        links.push(Used {
            link: link.clone(),
            runtime,
            at: now,
        });
        Ok(link)
    }

    /// Runs a call with the connection. If it fails because the connection broke, the next caller
    /// gets a new one.
    pub(crate) async fn with<T>(
        &self,
        call: impl AsyncFnOnce(&mut Link) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let mut link = self.link().await?;
        let answer = call(&mut link).await;
        self.look_at(&answer).await;
        answer
    }

    /// Runs a call that does no harm if it is executed twice. If its connection is dropped, it is
    /// run once more, with a new one: a server, or a network, closes connections that are idle.
    pub(crate) async fn repeat<T, F>(&self, call: impl Fn(Link) -> F) -> Result<T, RedisError>
    where
        F: Future<Output = Result<T, RedisError>>,
    {
        let answer = call(self.link().await?).await;
        self.look_at(&answer).await;
        match answer {
            Err(error) if error.is_dropped() => {
                let answer = call(self.link().await?).await;
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
            let runtime = Handle::current().id();
            let mut links = self.links.lock().await;
            links.retain(|used| used.runtime != runtime);
        }
    }
}
