//! The handle of a queue.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use bytes::Bytes;
use keylane_source::RawMessage;
use redis::{Cmd, cmd};

use super::config::Settings;
use super::keys::Keys;
use super::record::{decode, encode};
use super::script::{EXPIRE, LETTERS, REDRIVE, run};
use super::source::ListSource;
use crate::error::RedisError;
use crate::link::Link;
use crate::reconnecting_link::ReconnectingLink;
use crate::server::Redis;

/// A list as a queue that loses no message and keeps the order of each key, over any number of
/// workers. Cheap to clone.
///
/// Producers push with [`push`](Self::push), or with `LPUSH` in any language. An element that was
/// handed out stays in the server, with its worker, until it is acked. The cost of that step does
/// not depend on the number of other elements. A worker that is silent for longer than its lease
/// loses all its elements. They go back to the front of the list, in their order, in one atomic
/// step. Any worker does this; no extra process is needed.
///
/// While an element of a key is with a worker, other elements of that key go to the same worker. So
/// one process at a time handles a key, in the order of the list, if the queue knows where the
/// [key](crate::ListBuilder::key) is.
///
/// Each hand-out has a [token](Self::token), higher than all earlier ones. A worker that was paused
/// past its lease does not know that its lease has ended. So the store that keeps its effects must
/// refuse a token that is lower than one it has seen for the key.
///
/// The keys beside the list begin with `{list}:keylane:`, or with `{shop}:keylane:10:{shop}list:`
/// for a list `{shop}list`: two lists share none, and in a cluster all of them are in the slot of
/// the list.
///
/// # Examples
///
/// ```no_run
/// use keylane::source::RawMessage;
/// use keylane_redis::{ListKey, ListQueue, Redis};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::at("redis://localhost")?;
/// let queue = ListQueue::builder(&redis, "orders").key(ListKey::json("user")).build()?;
/// queue.push(&RawMessage::new(r#"{"user": "u-7", "amount": 12}"#).key("u-7")).await?;
/// println!("{}", queue.status().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ListQueue {
    pub(super) list: Arc<List>,
}

impl ListQueue {
    /// Creates a source of this queue, for `Dispatcher::consume`: a worker of its own.
    pub fn source(&self) -> ListSource {
        ListSource::new(&self.list)
    }

    /// Returns the fencing token under which a message was handed out.
    pub fn token(message: &RawMessage) -> Option<u64> {
        std::str::from_utf8(message.position.as_deref()?)
            .ok()?
            .parse()
            .ok()
    }

    /// Puts a message at the end of the list, with its key, id and headers. The server decides how
    /// durable it is: with `appendfsync always` it is on the disk when this returns.
    ///
    /// In a cluster the client sends a command again whose connection was closed before the answer
    /// came. So the message may be in the list twice, with the same id.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`]. After [`Unreachable`](crate::ErrorKind::Unreachable) the message may
    /// be in the list.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the message may be in the list.
    pub async fn push(&self, message: &RawMessage) -> Result<(), RedisError> {
        self.push_all(std::slice::from_ref(message)).await
    }

    /// Puts messages at the end of the list, in their order: all of them or none.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    ///
    /// # Cancel safety
    ///
    /// As [`push`](Self::push).
    pub async fn push_all(&self, messages: &[RawMessage]) -> Result<(), RedisError> {
        if messages.is_empty() {
            return Ok(());
        }
        let mut push = cmd("LPUSH");
        push.arg(&*self.list.settings.list);
        for message in messages {
            push.arg(&*encode(message));
        }
        self.list
            .link
            .with(async |link| link.ask::<()>(&push).await)
            .await
    }

    /// Returns how many elements wait, and how many each worker holds.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`].
    ///
    /// # Cancel safety
    ///
    /// This changes nothing in the server.
    pub async fn status(&self) -> Result<ListStatus, RedisError> {
        let list = &self.list;
        let Keys {
            list: waiting,
            workers,
            owners,
            letters,
            ..
        } = &list.keys;
        let mut first = redis::pipe();
        first.cmd("LLEN").arg(&**waiting);
        first.cmd("LLEN").arg(&**letters);
        first.cmd("HLEN").arg(&**owners);
        first.cmd("TIME");
        first
            .cmd("ZRANGE")
            .arg(&**workers)
            .arg(0)
            .arg(-1)
            .arg("WITHSCORES");
        type First = (u64, u64, u64, (u64, u64), Vec<(String, f64)>);
        let (waiting, letters, keys, (seconds, micros), known): First = list
            .link
            .repeat(async |mut link| Ok(first.query_async(&mut link).await?))
            .await?;
        let now = seconds * 1_000 + micros / 1_000;
        let mut workers = Vec::with_capacity(known.len());
        for (worker, until) in known {
            let mut each = redis::pipe();
            let keys = list.keys.of(&worker);
            each.cmd("HLEN").arg(&*keys.work);
            each.cmd("LLEN").arg(&*keys.inbox);
            let (held, sent): (u64, u64) = list
                .link
                .repeat(async |mut link| Ok(each.query_async(&mut link).await?))
                .await?;
            let lease = Duration::from_millis((until as u64).saturating_sub(now));
            workers.push(WorkerStatus {
                worker,
                lease,
                held,
                sent,
            });
        }
        Ok(ListStatus {
            waiting,
            letters,
            keys,
            workers,
        })
    }

    /// Returns which worker has which key now: some of the keys, at least `most` if there are as
    /// many.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`].
    ///
    /// # Cancel safety
    ///
    /// This changes nothing in the server.
    pub async fn holders(&self, most: usize) -> Result<Vec<KeyHolder>, RedisError> {
        let list = &self.list;
        let (mut cursor, mut holders) = (0_u64, Vec::new());
        while holders.len() < most {
            let mut scan = cmd("HSCAN");
            scan.arg(&*list.keys.owners)
                .arg(cursor)
                .arg("COUNT")
                .arg(most.clamp(10, 1_000));
            type Page = (u64, Vec<(Vec<u8>, String)>);
            let (next, page): Page = list
                .link
                .repeat(async |mut link| link.ask(&scan).await)
                .await?;
            holders.extend(page.into_iter().filter_map(|(key, owner)| {
                let (open, worker) = owner.split_once(':')?;
                Some(KeyHolder {
                    key: key.into(),
                    worker: worker.to_owned(),
                    open: open.parse().ok()?,
                })
            }));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        Ok(holders)
    }

    /// Gives back the elements of workers whose leases have run out. Returns how many elements that
    /// were. Workers do it in each of their round trips: this is for a queue without workers.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`]: it may be done for some workers.
    ///
    /// # Cancel safety
    ///
    /// For each worker it is done as a whole or not at all.
    pub async fn return_expired(&self) -> Result<u64, RedisError> {
        let list = &self.list;
        let mut first = cmd("ZRANGE");
        first.arg(&*list.keys.workers).arg(0).arg(0);
        let mut all = 0;
        loop {
            // The lease that ends first.
            let link = &list.link;
            let worker: Vec<String> = link.with(async |link| link.ask(&first).await).await?;
            let Some(worker) = worker.first() else {
                return Ok(all);
            };
            let back = link.with(async |link| list.expire(link, worker, b"").await);
            match back.await? {
                Some(back) => all += back,
                None => return Ok(all),
            }
        }
    }

    /// Returns the oldest dead letters: the original messages, with headers for the reason.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`].
    ///
    /// # Cancel safety
    ///
    /// This changes nothing in the server.
    pub async fn letters(&self, most: usize) -> Result<Vec<RawMessage>, RedisError> {
        let list = &self.list;
        let mut all = Vec::new();
        while all.len() < most {
            let arguments = |command: &mut Cmd| {
                command
                    .arg(all.len())
                    .arg(most - all.len())
                    .arg(list.settings.most_bytes);
            };
            let read = async |link: Link| run(&LETTERS, &link, list.keys.all(), arguments).await;
            let read = list.link.repeat(read);
            let page: Vec<Vec<u8>> = read.await?;
            if page.is_empty() {
                break;
            }
            all.extend(page.into_iter().map(|letter| decode(letter.into()).0));
        }
        Ok(all)
    }

    /// Puts the oldest dead letters at the end of the list again, in their original form, to be
    /// tried again. Returns how many. In a cluster it may be up to 1,000 more, for the reason that
    /// [`push`](Self::push) gives.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`]: some letters may be back in the list.
    ///
    /// # Cancel safety
    ///
    /// The letters move in steps of up to 1,000: each step is done as a whole or not at all.
    pub async fn redrive(&self, most: u64) -> Result<u64, RedisError> {
        const BATCH: u64 = 1_000;
        let mut all = 0;
        while all < most {
            let arguments = |command: &mut Cmd| {
                command.arg(BATCH.min(most - all));
            };
            let list = &self.list;
            let moved =
                async |link: &mut Link| run(&REDRIVE, link, list.keys.all(), arguments).await;
            let moved = list.link.with(moved);
            let back: u64 = moved.await?;
            if back == 0 {
                break;
            }
            all += back;
        }
        Ok(all)
    }
}

impl fmt::Debug for ListQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.list, f)
    }
}

/// What a queue and its sources share.
pub(super) struct List {
    pub(super) redis: Redis,
    pub(super) settings: Settings,
    pub(super) keys: Keys,
    /// The connection of all calls except those of the sources.
    pub(super) link: ReconnectingLink,
    /// The highest token that a source of this queue has received.
    pub(super) highest: AtomicU64,
    /// Whether an element without a key was warned of.
    pub(super) is_keyless_known: AtomicBool,
}

impl List {
    pub(super) fn new(redis: Redis, settings: Settings) -> Self {
        Self {
            keys: Keys::new(&settings.list),
            link: ReconnectingLink::new(redis.clone()),
            highest: AtomicU64::new(0),
            is_keyless_known: AtomicBool::new(false),
            redis,
            settings,
        }
    }

    /// Gives back the elements of this worker, and frees this key if the worker has it. Returns
    /// `None` if the worker has its lease.
    pub(super) async fn expire(
        &self,
        link: &Link,
        worker: &str,
        key: &[u8],
    ) -> Result<Option<u64>, RedisError> {
        let (all, of) = (self.keys.all(), self.keys.of(worker));
        let keys = all.into_iter().chain(of.all());
        let expired = run::<i64>(&EXPIRE, link, keys, |command| {
            command.arg(worker).arg(key);
        });
        Ok(u64::try_from(expired.await?).ok())
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListQueue")
            .field("redis", &self.redis)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The state of a queue.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListStatus {
    /// Elements that wait in the list.
    pub waiting: u64,
    /// Dead letters.
    pub letters: u64,
    /// Keys that a worker has.
    pub keys: u64,
    /// The workers.
    pub workers: Vec<WorkerStatus>,
}

/// The state of a worker.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The name of the worker in the server.
    pub worker: String,
    /// How long its lease lasts if it is not renewed.
    pub lease: Duration,
    /// Elements that were handed out to it and have not settled.
    pub held: u64,
    /// Elements in its inbox.
    pub sent: u64,
}

/// The worker that has a key.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    /// The key.
    pub key: Bytes,
    /// The worker.
    pub worker: String,
    /// Open elements of the key, including those in the worker's inbox.
    pub open: u64,
}

impl fmt::Display for ListStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held: u64 = self
            .workers
            .iter()
            .map(|worker| worker.held + worker.sent)
            .sum();
        let Self {
            waiting,
            letters,
            keys,
            workers,
        } = self;
        let workers = workers.len();
        write!(
            f,
            "{waiting} waiting, {held} with {workers} workers, {keys} keys, {letters} dead letters"
        )
    }
}
