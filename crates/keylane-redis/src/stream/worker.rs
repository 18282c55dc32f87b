//! What the tasks of a source share, and what they say to it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keylane_leases::Lease;
use redis::{Value, cmd};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::answer::{Failure, Fields};
use super::builder::Config;
use super::counts::Counters;
use super::flow::Flow;
use super::guard::Starts;
use super::id::EntryId;
use super::lease::{Acked, Place, StreamLease, TenureId};
use super::outbox::{PAUSE, StreamOutbox};
use super::reader::Entry;
use crate::error::{ErrorKind, RedisError};
use crate::link::Link;

/// How long something is left alone that the server will not do for now.
pub(super) const LONG_PAUSE: Duration = Duration::from_secs(1);

/// What all tasks of one opening of a source have.
pub(super) struct Worker {
    pub(super) config: Arc<Config>,
    pub(super) link: Link,
    pub(super) acked: Acked,
    pub(super) starts: Arc<Starts>,
    pub(super) counters: Counters,
    pub(super) resumes: Arc<Resumes>,
    pub(super) news: mpsc::UnboundedSender<News>,
    /// What fails while the rest goes on.
    pub(super) failing: Mutex<BTreeSet<(u32, Duty)>>,
}

/// What is done with a stream, and may fail by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Duty {
    /// To own it, and what belongs to that.
    Own,
    /// To hear of what is added. Without that it is looked at.
    Wait,
    Trim,
    /// To know the members of its group, which are beside the first stream.
    Share,
}

impl Duty {
    /// What a person knows it by.
    fn of(self, place: &Place) -> String {
        match self {
            Self::Own => place.name(),
            Self::Wait => format!("{}, to be waited for", place.name()),
            Self::Trim => format!("{}, to be cut off", place.name()),
            Self::Share => format!("the members of {}", String::from_utf8_lossy(&place.group)),
        }
    }
}

impl Worker {
    /// Says it to the source, which may be gone.
    pub(super) fn say(&self, news: News) {
        let _ = self.news.send(news);
    }

    /// Something of a stream fails, and is tried again.
    pub(super) fn fails(&self, place: &Place, duty: Duty, why: String) {
        lock(&self.failing).insert((place.number, duty));
        let part = duty.of(place);
        self.say(News::PartFailed { part, why });
    }

    /// It does not fail any more, or is not up to this process.
    pub(super) fn works(&self, place: &Place, duty: Duty) {
        if lock(&self.failing).remove(&(place.number, duty)) {
            self.say(News::PartRecovered(duty.of(place)));
        }
    }

    /// Says that something of a stream has failed, and waits until it may be tried again. What
    /// fails with the connection is returned: it is no trouble of the stream's own.
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

    /// Whether a new connection to a cluster reaches a stream that this one does not: its client
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a group would begin that is gone, by the number of its stream.
#[derive(Debug, Default)]
pub(super) struct Resumes(Mutex<HashMap<u32, Resume>>);

/// What an owner knew of a stream in the end.
#[derive(Clone, Debug)]
pub(super) struct Resume {
    /// Everything up to here had settled.
    pub(super) settled: EntryId,
    /// The token of the owner, and its consumer.
    pub(super) token: Arc<str>,
    pub(super) consumer: Arc<str>,
    pub(super) seen: Option<Seen>,
}

/// An entry that the stream had. One that was made again under its name may have the id, and is
/// told by what is in it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) id: EntryId,
    pub(super) fields: Fields,
}

impl Resumes {
    pub(super) fn get(&self, stream: u32) -> Option<Resume> {
        self.all().get(&stream).cloned()
    }

    pub(super) fn set(&self, stream: u32, resume: Resume) {
        self.all().insert(stream, resume);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u32, Resume>> {
        lock(&self.0)
    }
}

/// What a source is told.
pub(super) enum News {
    Gained(Box<Gained>),
    /// Entries of a stream, in the order of their ids, in the round of reading with this number.
    Entries {
        stream: u32,
        round: u32,
        entries: Vec<Entry>,
    },
    /// A stream is not owned any more: by the clock of this process, or because the server takes
    /// nothing more from this owner, or because it is gone.
    Lost(TenureId),
    /// There are more members now: this stream is to go.
    Surplus(u32),
    /// A stream, or something of it, fails while the others go on.
    PartFailed {
        part: String,
        why: String,
    },
    PartRecovered(String),
    /// The connection does not work, or the server refuses what is needed.
    Failed(RedisError),
}

/// A stream that is owned from now on.
pub(super) struct Gained {
    pub(super) tenure: StreamLease,
    pub(super) lease: Arc<Lease>,
    pub(super) flow: Arc<Flow>,
    pub(super) teller: Arc<StreamOutbox>,
    pub(super) telling: Task,
    pub(super) orders: mpsc::UnboundedSender<Order>,
}

/// What the source has the task of an owned stream do. Without its sender the task ends, and gives
/// the stream up.
pub(super) enum Order {
    /// Read nothing more.
    Rest,
    /// Read everything again that is pending, in this round.
    Begin(u32),
    /// Give the stream up, and say when it is given up.
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
