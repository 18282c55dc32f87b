//! The connections to the servers of a database.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use keylane_connector::lock;
use sqlx::pool::PoolOptions;
use sqlx::{ConnectOptions, Connection, Pool};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::error::{ErrorKind, SettingError, SqlError};
use crate::session::{Options, Server, judge};

/// How long a call waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(5);

/// How long a server may take to say whether it takes writes, or why no connection comes.
const ANSWER: Duration = Duration::from_secs(2);

/// The pause before all servers are asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// How often the settings of a server that is in use are checked, and how often at most if
/// connections are new: the server may be another one.
const CHECKS: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(1));

/// The pool of a database.
pub(crate) struct Connections<DB: Server> {
    pub(crate) pool: Pool<DB>,
    checks: Arc<Mutex<Checks>>,
    /// A call could not reach the server, or the server takes no writes.
    is_away: Arc<Notify>,
    /// Points the pool at another server, where there are several.
    _follows: Option<Arc<AbortOnDropHandle<()>>>,
}

impl<DB: Server> Clone for Connections<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            checks: Arc::clone(&self.checks),
            is_away: Arc::clone(&self.is_away),
            _follows: self._follows.clone(),
        }
    }
}

impl<DB: Server> Connections<DB> {
    /// Uses the pool of a user.
    pub(crate) fn of(pool: Pool<DB>) -> Self {
        Self {
            pool,
            checks: Arc::default(),
            is_away: Arc::default(),
            _follows: None,
        }
    }

    /// Connects to the first of these servers that takes writes, and to another one later. If none
    /// of them takes writes, connects to the first one.
    pub(crate) async fn to(servers: Vec<Options<DB>>) -> Result<Self, SqlError> {
        let first = match &servers[..] {
            [only] => only,
            _ => primaries::<DB>(&servers)
                .await
                .first()
                .copied()
                .unwrap_or(&servers[0]),
        };
        let options = first.clone();
        let checks: Arc<Mutex<Checks>> = Arc::default();
        let connected = Arc::clone(&checks);
        let pool = PoolOptions::<DB>::new()
            .acquire_timeout(ACQUIRE)
            .after_connect(move |session, _| {
                lock(&connected).is_new = true;
                DB::set(session)
            });
        let pool = match pool.connect_with(options.clone()).await {
            Err(sqlx::Error::PoolTimedOut) => Err(why::<DB>(&options).await),
            pool => pool.map_err(SqlError::from),
        };
        let pool = pool.map_err(|error| {
            let places: Vec<String> = servers.iter().map(DB::place).collect();
            error.at(|| DB::named(&options, &places.join(",")))
        })?;
        let is_away = Arc::new(Notify::new());
        let follows = (servers.len() > 1).then(|| {
            let follows = follow(pool.clone(), servers, Arc::clone(&is_away));
            Arc::new(AbortOnDropHandle::new(tokio::spawn(follows)))
        });
        Ok(Self {
            pool,
            checks,
            is_away,
            _follows: follows,
        })
    }

    /// Records an error of a call.
    pub(crate) fn heard(&self, error: &SqlError) {
        if error.kind() == ErrorKind::ReadOnly {
            self.close_idle();
        }
        if matches!(
            error.kind(),
            ErrorKind::Unreachable | ErrorKind::ReadOnly | ErrorKind::Tls(_)
        ) {
            self.look();
        }
    }

    /// Looks for a server that takes writes, where there are several.
    pub(crate) fn look(&self) {
        self.is_away.notify_one();
    }

    /// Closes the idle connections, which would get the same answer as the one before, or none:
    /// they began while the database took no writes, or belong to a server that was the primary.
    /// Those that are alive would be lent again.
    pub(crate) fn close_idle(&self) {
        for _ in 0..self.pool.size() {
            let Some(idle) = self.pool.try_acquire() else {
                break;
            };
            drop(idle.detach());
        }
    }

    /// Returns whether a check is due, and counts it as done.
    pub(crate) fn is_check_due(&self) -> bool {
        lock(&self.checks).is_due(Instant::now())
    }

    /// Returns whether the last check has found sessions that can be used.
    pub(crate) fn is_sound(&self) -> bool {
        lock(&self.checks).is_sound
    }

    /// Returns whether statements stay prepared, as far as is known.
    pub(crate) fn keeps_statements(&self) -> bool {
        lock(&self.checks).keeps_statements
    }

    /// Records that statements stay prepared, and whether a pooler does that.
    pub(crate) fn set_keeps_statements(&self, is_by_a_pooler: bool) {
        let mut checks = lock(&self.checks);
        (checks.keeps_statements, checks.shares_sessions) = (true, is_by_a_pooler);
    }

    /// Returns whether a pooler lends each session to several clients. What a client sets in a
    /// session, or listens to there, reaches others.
    pub(crate) fn shares_sessions(&self) -> bool {
        lock(&self.checks).shares_sessions
    }

    /// Judges what a check has read, and warns of settings with which the server loses data.
    pub(crate) fn judge(&self, values: Vec<String>) -> Result<(), SettingError> {
        let judged = judge(DB::VARIABLES, values);
        lock(&self.checks).is_sound = judged.is_ok();
        for hazard in judged? {
            hazard.warn(&self.place());
        }
        Ok(())
    }

    /// Returns where the server is, for the log.
    pub(crate) fn place(&self) -> String {
        DB::place(&self.pool.connect_options())
    }

    /// Returns the database as errors name it.
    pub(crate) fn named(&self) -> String {
        let options = self.pool.connect_options();
        DB::named(&options, &DB::place(&options))
    }
}

/// When the settings of a server are checked. Pure.
#[derive(Debug, Default)]
struct Checks {
    last: Option<Instant>,
    /// A connection was made since.
    is_new: bool,
    is_sound: bool,
    /// No pooler was found in which prepared statements get lost.
    keeps_statements: bool,
    shares_sessions: bool,
}

impl Checks {
    fn is_due(&mut self, now: Instant) -> bool {
        let pause = if self.is_new { CHECKS.1 } else { CHECKS.0 };
        let is_due = self
            .last
            .is_none_or(|last| now.saturating_duration_since(last) >= pause);
        if is_due {
            (self.last, self.is_new) = (Some(now), false);
        }
        is_due
    }
}

/// Returns the servers that take writes.
async fn primaries<DB: Server>(servers: &[Options<DB>]) -> Vec<&Options<DB>> {
    let asked = servers.iter().map(|options| {
        timeout(ANSWER, async move {
            let mut session = options.connect().await?;
            let takes_writes = DB::takes_writes(&mut session).await?;
            session.close().await?;
            Ok::<_, sqlx::Error>(takes_writes.then_some(options))
        })
    });
    let answers = join_all(asked).await.into_iter();
    answers
        .filter_map(|answer| answer.ok()?.ok().flatten())
        .collect()
}

/// Points a pool at a server that takes writes, each time that its own does not any more.
async fn follow<DB: Server>(pool: Pool<DB>, servers: Vec<Options<DB>>, is_away: Arc<Notify>) {
    loop {
        is_away.notified().await;
        let before = DB::place(&pool.connect_options());
        loop {
            let primaries = primaries::<DB>(&servers).await;
            if primaries.iter().any(|one| DB::place(one) == before) {
                break;
            }
            if let Some(found) = primaries.first() {
                let now = DB::place(found);
                tracing::info!(target: "keylane", before, now, "another server takes writes now");
                pool.set_connect_options((*found).clone());
                break;
            }
            sleep(PAUSE).await;
        }
        sleep(PAUSE).await;
    }
}

/// Returns the reason why a pool could not connect: the pool only says that it could not.
async fn why<DB: Server>(options: &Options<DB>) -> SqlError {
    match timeout(ANSWER, options.connect()).await {
        Ok(Err(error)) => error.into(),
        Ok(Ok(_)) | Err(_) => sqlx::Error::PoolTimedOut.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_checked_at_intervals_and_when_connections_are_new() {
        let (mut checks, start) = (Checks::default(), Instant::now());
        let mut due = Vec::new();
        for second in 0..1_000 {
            checks.is_new |= matches!(second, 400..410);
            if checks.is_due(start + Duration::from_secs(second)) {
                due.push(second);
            }
        }
        let expected = [0, 300].into_iter().chain(400..410).chain([709]);
        assert_eq!(due, Vec::from_iter(expected));
    }
}
