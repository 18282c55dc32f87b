//! A connection that connects again after it has broken.

use std::time::Duration;

use redis::cmd;
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
pub(crate) struct ReconnectingLink {
    redis: Redis,
    link: Mutex<Option<(Link, Instant)>>,
}

impl ReconnectingLink {
    pub(crate) fn new(redis: Redis) -> Self {
        Self {
            redis,
            link: Mutex::new(None),
        }
    }

    /// Returns the current connection, or a new one. Callers at the same time share it.
    async fn link(&self) -> Result<Link, RedisError> {
        let mut slot = self.link.lock().await;
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
        let answer = call(&mut link).await;
        if let Err(error) = &answer
            && error.breaks_connection()
        {
            // Another caller may have connected again meanwhile. Then it connects once more, which
            // is rare and does no harm.
            *self.link.lock().await = None;
        }
        answer
    }
}
