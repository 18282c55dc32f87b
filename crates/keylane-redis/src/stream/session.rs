//! One opening of a source.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keylane_leases::{Lease, Leases};
use keylane_source::SourceError;
use redis::{Value, cmd};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::config::Config;
use super::core::Resumes;
use super::counts::Counters;
use super::guard::Starts;
use super::lease::Acked;
use super::membership::{Member, Membership};
use super::watch::Shown;
use super::worker::{Failing, News, Worker};
use crate::error::RedisError;
use crate::leases::RedisLeases;
use crate::link::Link;

/// How long it waits for the end of the tasks.
const END_WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Session {
    pub(super) link: Link,
    pub(super) news: mpsc::UnboundedReceiver<News>,
    pub(super) failing: Failing,
    steward: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

/// The state that outlives a session.
pub(super) struct Lasting<'a> {
    pub(super) config: &'a Arc<Config>,
    pub(super) starts: &'a Arc<Starts>,
    pub(super) counters: &'a Counters,
    pub(super) shown: &'a Shown,
    pub(super) resumes: &'a Arc<Resumes>,
    pub(super) member: &'a Member,
    pub(super) leases: Leases,
    /// Leases of an earlier opening, by the number of the stream. Leases that are not taken stay.
    pub(super) kept: &'a mut BTreeMap<u32, Arc<Lease>>,
}

impl Session {
    pub(super) async fn open(lasting: Lasting<'_>) -> Result<Self, RedisError> {
        let config = lasting.config;
        let link = config.redis.connect().await?;
        let acked = match config.settings.deletes {
            false => Acked::Stay,
            true => how_to_delete(&mut link.clone()).await?,
        };
        let (say, news) = mpsc::unbounded_channel();
        let failing = Failing::default();
        let worker = Worker {
            config: Arc::clone(config),
            link: link.clone(),
            acked,
            starts: Arc::clone(lasting.starts),
            counters: lasting.counters.clone(),
            resumes: Arc::clone(lasting.resumes),
            news: say,
            failing: failing.clone(),
            shown: lasting.shown.clone(),
        };
        let settings = &config.settings;
        let members = super::membership::members_key(&settings.streams[0], &settings.group);
        let member = lasting.member.clone();
        let steward = Membership::new(Arc::new(worker), lasting.leases, member, members);
        let (stop, stopped) = oneshot::channel();
        let kept = std::mem::take(lasting.kept);
        Ok(Self {
            link,
            news,
            failing,
            steward: tokio::spawn(steward.run(kept, stopped)),
            stop: Some(stop),
        })
    }

    /// Whether the tasks run.
    pub(super) fn is_well(&self) -> bool {
        !self.steward.is_finished()
    }

    /// Stops acquiring streams, and leaves the members of the group.
    pub(super) fn stop(&mut self) {
        // Without a receiver it has ended.
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Waits for the end of the tasks, after a stop.
    pub(super) async fn ended(mut self) {
        let _ = timeout(END_WITHIN, &mut self.steward).await;
    }

    /// Asks the server for an answer.
    pub(super) fn probe(&self) -> oneshot::Receiver<Result<(), RedisError>> {
        let (tell, told) = oneshot::channel();
        let mut link = self.link.clone();
        tokio::spawn(async move {
            let answer = link.ping().await;
            // A server that cannot do anything now is there. It would not help to open the source
            // again.
            let _ = tell.send(match answer {
                Err(error) if error.breaks_connection() => Err(error),
                _ => Ok(()),
            });
        });
        told
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.steward.abort();
    }
}

async fn how_to_delete(link: &mut Link) -> Result<Acked, RedisError> {
    let known: Value = link.ask(cmd("COMMAND").arg("INFO").arg("XACKDEL")).await?;
    let is_known = match known {
        Value::Array(commands) => commands.iter().any(|one| !matches!(one, Value::Nil)),
        _ => false,
    };
    Ok(match is_known {
        true => Acked::Deleted,
        false => Acked::DeletedIfAlone,
    })
}

/// Returns the default leases of a source: in its own server.
pub(super) fn default_leases(config: &Config) -> Result<Leases, SourceError> {
    let namespace = [b"keylane-streams:", &config.settings.group[..]].concat();
    let store = RedisLeases::open(&config.redis, namespace).map_err(SourceError::failed)?;
    Leases::open(Arc::new(store)).map_err(SourceError::failed)
}
