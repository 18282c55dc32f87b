//! What the tasks of a source share, and what they say to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane_leases::Lease;
use tokio::sync::{mpsc, oneshot};

use super::builder::Config;
use super::counts::Counters;
use super::flow::Flow;
use super::guard::Starts;
use super::id::EntryId;
use super::reader::Entry;
use super::teller::Teller;
use super::tenure::{Acked, Tenure, TenureId};
use crate::error::RedisError;
use crate::link::Link;

/// What all tasks of one opening of a source have.
pub(super) struct Worker {
    pub(super) config: Arc<Config>,
    pub(super) link: Link,
    pub(super) acked: Acked,
    pub(super) starts: Arc<Starts>,
    pub(super) counters: Counters,
    pub(super) resumes: Arc<Resumes>,
    pub(super) news: mpsc::UnboundedSender<News>,
}

impl Worker {
    /// Says it to the source, which may be gone.
    pub(super) fn say(&self, news: News) {
        let _ = self.news.send(news);
    }
}

/// Where a group would begin that is gone: everything below is settled. By the number of its stream.
#[derive(Debug, Default)]
pub(super) struct Resumes(Mutex<HashMap<u32, EntryId>>);

impl Resumes {
    pub(super) fn get(&self, stream: u32) -> Option<EntryId> {
        self.all().get(&stream).copied()
    }

    pub(super) fn set(&self, stream: u32, resume: EntryId) {
        self.all().insert(stream, resume);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u32, EntryId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// A stream is not owned any more: by the clock of this process, or because the server takes nothing
    /// more from this owner, or because it is gone.
    Lost(TenureId),
    /// There are more members now: this stream is to go.
    Surplus(u32),
    /// The connection does not work, or the server refuses what is needed.
    Failed(RedisError),
}

/// A stream that is owned from now on.
pub(super) struct Gained {
    pub(super) tenure: Tenure,
    pub(super) lease: Arc<Lease>,
    pub(super) flow: Arc<Flow>,
    pub(super) teller: Arc<Teller>,
    pub(super) telling: Task,
    pub(super) orders: mpsc::UnboundedSender<Order>,
}

/// What the source has the task of an owned stream do. Without its sender the task ends, and gives the
/// stream up.
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
