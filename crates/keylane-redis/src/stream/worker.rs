//! The state that the tasks of a source share, and their messages to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_connector::{ErrorKind, lock};
use keylane_leases::Lease;
use keylane_source::RawMessage;
use redis::{Value, cmd};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::answer::Failure;
use super::config::Config;
use super::core::Flow;
use super::core::Resumes;
use super::counts::Counters;
use super::guard::Starts;
use super::id::EntryId;
use super::lag::LastLag;
use super::lease::{Acked, Place, StreamLease, TenureId};
use super::settle::StreamOutbox;
use super::watch::Shown;
use crate::error::RedisError;
use crate::link::Link;

/// The pause after a server cannot do it now.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// How long it retries while other streams wait for that.
pub(super) const AGAIN_FOR: Duration = Duration::from_secs(5);

/// The pause before a retry of a call that the server refuses for now.
pub(super) const LONG_PAUSE: Duration = Duration::from_secs(1);

/// The common state of all tasks of one opening of a source.
pub(super) struct Worker {
    pub(super) config: Arc<Config>,
    pub(super) link: Link,
    pub(super) acked: Acked,
    pub(super) starts: Arc<Starts>,
    pub(super) counters: Counters,
    pub(super) resumes: Arc<Resumes>,
    pub(super) news: mpsc::UnboundedSender<News>,
    pub(super) failing: Failing,
    pub(super) shown: Shown,
}

/// The current failures, with their reasons, while the rest goes on. A handle: its clones share
/// them.
#[derive(Clone, Debug, Default)]
pub(super) struct Failing(Arc<Mutex<BTreeMap<(u32, Duty), String>>>);

impl Failing {
    /// Returns why streams fail, by their numbers.
    pub(super) fn of_streams(&self) -> Vec<(u32, String)> {
        let failing = lock(&self.0);
        let of_streams = failing.iter().filter_map(|((stream, duty), why)| {
            let why = match duty {
                Duty::Own => why.clone(),
                Duty::Wait => format!("waiting: {why}"),
                Duty::Trim => format!("trimming: {why}"),
                Duty::Share => return None,
            };
            Some((*stream, why))
        });
        of_streams.collect()
    }
}

/// A part of the work on a stream that may fail by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Duty {
    /// Owning the stream, with all its calls.
    Own,
    /// Waiting for new entries. If that fails, the stream is polled.
    Wait,
    Trim,
    /// Knowing the members of its group, which are stored beside the first stream.
    Share,
}

impl Duty {
    /// Returns its name for messages and logs.
    fn of(self, place: &Place) -> String {
        match self {
            Self::Own => place.name(),
            Self::Wait => format!("{} (waiting)", place.name()),
            Self::Trim => format!("{} (trimming)", place.name()),
            Self::Share => format!("the members of {}", String::from_utf8_lossy(&place.group)),
        }
    }
}

impl Worker {
    /// Sends news to the source, which may be gone.
    pub(super) fn say(&self, news: News) {
        let _ = self.news.send(news);
    }

    /// Records that a part of the work on a stream fails. It is tried again.
    pub(super) fn fails(&self, place: &Place, duty: Duty, why: String) {
        lock(&self.failing.0).insert((place.number, duty), why.clone());
        let part = duty.of(place);
        self.say(News::PartFailed { part, why });
    }

    /// Records that it does not fail any more, or that this process does not do it any more.
    pub(super) fn works(&self, place: &Place, duty: Duty) {
        let failed = lock(&self.failing.0).remove(&(place.number, duty));
        if failed.is_some() {
            self.say(News::PartRecovered(duty.of(place)));
        }
    }

    /// Reports a failure of a stream, and waits until the next try. Returns a failure of the
    /// connection, which is not about the stream.
    pub(super) async fn bear(
        &self,
        place: &Place,
        duty: Duty,
        failure: Failure,
    ) -> Result<(), RedisError> {
        let (error, pause) = match failure {
            Failure::Failed(error) => return Err(error),
            Failure::Unable(error) => (error, PAUSE),
            Failure::Lasting(error) => (error, LONG_PAUSE),
        };
        self.fails(place, duty, error.to_string());
        let is_unheard = self.config.redis.is_cluster() && error.kind() == ErrorKind::Unreachable;
        if is_unheard && self.is_reached_anew(place).await {
            return Err(error);
        }
        sleep(pause).await;
        Ok(())
    }

    /// Whether a new connection to a cluster reaches a stream that this one does not: the client
    /// keeps a connection that has gone silent.
    async fn is_reached_anew(&self, place: &Place) -> bool {
        let mut exists = cmd("EXISTS");
        exists.arg(&*place.stream);
        // A refusal is an answer.
        let is_heard = |answer: Result<Value, RedisError>| match answer {
            Ok(_) => true,
            Err(error) => !error.breaks_connection(),
        };
        let Ok(mut new) = self.config.redis.connect().await else {
            return false;
        };
        is_heard(new.ask(&exists).await) && !is_heard(self.link.clone().ask(&exists).await)
    }
}

/// News for a source.
pub(super) enum News {
    Gained(Box<Gained>),
    /// Entries of a stream, in the order of their ids, with the number of the round of reading.
    Entries {
        stream: u32,
        round: u32,
        entries: Vec<Entry>,
    },
    /// A stream is not owned any more: by the clock of this process, or because the server refuses
    /// this owner, or because the stream is gone.
    Lost(TenureId),
    /// There are more members now, and this stream is surplus.
    Surplus(u32),
    /// A stream, or a part of the work on it, fails while the others go on.
    PartFailed {
        part: String,
        why: String,
    },
    PartRecovered(String),
    /// The connection does not work, or the server refuses a necessary call.
    Failed(RedisError),
}

/// An entry that waits to be handed over.
pub(super) struct Entry {
    pub(super) id: EntryId,
    pub(super) attempts: u32,
    pub(super) is_new: bool,
    pub(super) bytes: usize,
    pub(super) message: RawMessage,
}

/// A stream that is owned from now on.
pub(super) struct Gained {
    pub(super) tenure: StreamLease,
    pub(super) lease: Arc<Lease>,
    pub(super) flow: Arc<Flow>,
    pub(super) teller: Arc<StreamOutbox>,
    pub(super) telling: Task,
    pub(super) orders: mpsc::UnboundedSender<Order>,
    pub(super) lag: LastLag,
}

/// An order of the source to the task of an owned stream. When its sender is dropped, the task
/// gives the stream up and ends.
pub(super) enum Order {
    /// Stop reading.
    Rest,
    /// Read all pending entries again, in this round.
    Begin(u32),
    /// Give the stream up, and answer when that is done.
    Leave(oneshot::Sender<()>),
}

/// A task that ends with its owner.
#[derive(Debug)]
pub(super) struct Task(pub(super) tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
