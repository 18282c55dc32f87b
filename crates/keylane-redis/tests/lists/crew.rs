//! Workers of this process on one list, a producer, and a sink that records what they do.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::{Intake, IntakeSettings, IntakeState};
use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_redis::{ErrorKind, ListQueue, RedisError};
use keylane_testkit::scenario::{Random, boxed, by_key};
use redis::cmd;
use testkit_servers::RedisKind;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::sink::Sink;
use crate::state::{beside, check_idle};
use crate::story::Story;
use crate::support::{connect, own, until};

/// The limit of waiting elements.
const AHEAD: usize = 400;

pub(crate) struct Crew {
    pub(crate) list: String,
    pub(crate) workers: Vec<Intake>,
    pub(crate) sink: Sink,
    queue: ListQueue,
    handled: Arc<Mutex<HashSet<u64>>>,
    last: Arc<AtomicU64>,
    known: BTreeMap<u64, u64>,
    ends: Arc<AtomicBool>,
    producer: JoinHandle<Pushed>,
    _sink_server: Arc<testkit_servers::Redis>,
}

/// The pushed elements, each id with its key, and those whose push is uncertain.
#[derive(Default)]
struct Pushed {
    all: BTreeMap<u64, u64>,
    unknown: HashSet<u64>,
}

impl Crew {
    /// Creates a crew without workers. The producer pushes to this queue, from this many keys,
    /// until the end.
    pub(crate) async fn new(list: &str, producer: ListQueue, keys: u64) -> Self {
        let sink_server = own(RedisKind::Redis7).await;
        let sink = Sink::at(&sink_server.url(), true).await;
        let (handled, ends) = (Arc::default(), Arc::default());
        let last = Arc::<AtomicU64>::default();
        let produced = Producer {
            queue: producer.clone(),
            keys,
            handled: Arc::clone(&handled),
            last: Arc::clone(&last),
            ends: Arc::clone(&ends),
        };
        Self {
            list: list.to_owned(),
            workers: Vec::new(),
            sink,
            queue: producer,
            handled,
            last,
            known: BTreeMap::new(),
            ends,
            producer: tokio::spawn(produced.run()),
            _sink_server: sink_server,
        }
    }

    /// Adds a worker.
    pub(crate) fn join(&mut self, queue: &ListQueue) {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let own = NEXT.fetch_add(1, Ordering::Relaxed);
        let (sink, handled) = (self.sink.clone(), Arc::clone(&self.handled));
        let handler = move |message: RawMessage| {
            let (sink, handled) = (sink.clone(), Arc::clone(&handled));
            async move {
                let token = ListQueue::token(&message).unwrap();
                let (key, id) = read(&message);
                if sink.claim(own, key, id, token).await {
                    let takes = if id % 50 == 0 { 60 } else { id % 5 };
                    sleep(Duration::from_millis(takes)).await;
                    if sink.effect(own, key, id, token).await {
                        handled.lock().unwrap().insert(id);
                    }
                }
                Ok(())
            }
        };
        let dispatcher = by_key()
            .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(100_000))
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(handler))
            .unwrap();
        let settings = IntakeSettings::new()
            .held(32)
            .longest_pause(Duration::from_millis(200))
            .confirm_every(Duration::from_millis(50))
            .stall_after(Duration::from_secs(5));
        let intake = dispatcher.consume_with(queue.source(), settings);
        self.workers.push(intake.unwrap());
    }

    /// Records elements that were pushed before, each id with its key. The producer's ids are
    /// higher.
    pub(crate) fn known(&mut self, ids: impl IntoIterator<Item = (u64, u64)>) {
        self.known.extend(ids);
    }

    /// How often the workers have lost their elements.
    pub(crate) fn restarts(&self) -> u64 {
        let restarts = self.workers.iter().map(|worker| worker.stats().restarts);
        restarts.sum()
    }

    /// Waits until each of them works: a worker that is not connected cannot lose anything.
    pub(crate) async fn all_work(&self) {
        until("all workers work", async || {
            let mut workers = self.workers.iter();
            workers.all(|worker| worker.stats().state == IntakeState::Running)
        })
        .await;
    }

    /// The last id whose push was confirmed.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Elements that were handled so far.
    pub(crate) fn done(&self) -> usize {
        self.handled.lock().unwrap().len()
    }

    /// Waits until this many more are handled.
    pub(crate) async fn progress(&self, more: usize) {
        let goal = self.done() + more;
        until("more is handled", async || self.done() >= goal).await;
    }

    /// Stops pushing, waits until the rest is handled, and makes the workers leave. Returns the
    /// history.
    pub(crate) async fn finish(mut self, url: &str) -> Story {
        self.ends.store(true, Ordering::Relaxed);
        let pushed = (&mut self.producer).await.unwrap();
        let mut server = connect(url).await;
        let list = self.list.clone();
        until("nothing is left", async || {
            let mut left = redis::pipe();
            left.cmd("LLEN").arg(&list);
            left.cmd("HLEN").arg(beside(&list, "owners"));
            let left: Result<(u64, u64), _> = left.query_async(&mut server).await;
            left.is_ok_and(|left| left == (0, 0))
        })
        .await;
        for worker in &self.workers {
            worker.stop().within(Duration::from_secs(10)).await;
        }
        // Workers that could not announce that they leave are gone when their leases have run out.
        until("all have gone", async || {
            let _ = self.queue.return_expired().await;
            let mut expire = cmd("ZCARD");
            expire.arg(beside(&list, "workers"));
            let left: u64 = expire.query_async(&mut server).await.unwrap();
            self.sink.len().await;
            left == 0
        })
        .await;
        check_idle(&mut server, &self.list).await;
        let mut all = pushed.all;
        all.append(&mut self.known);
        Story {
            pushed: all,
            unknown: pushed.unknown,
            journal: self.sink.read(0).await,
            ..Story::default()
        }
    }
}

/// The message of an id.
pub(crate) fn message(key: u64, id: u64) -> RawMessage {
    RawMessage::new(Bytes::copy_from_slice(&id.to_be_bytes())).key(key.to_string())
}

/// The key and the id of a message.
pub(crate) fn read(message: &RawMessage) -> (u64, u64) {
    let key = std::str::from_utf8(message.key.as_deref().unwrap()).unwrap();
    let id = message.payload[..].try_into().unwrap();
    (key.parse().unwrap(), u64::from_be_bytes(id))
}

/// Whether the command may have been executed.
fn is_unknown(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Unable => false,
        ErrorKind::Unreachable => true,
        other => panic!("{other:?}: {error}"),
    }
}

struct Producer {
    queue: ListQueue,
    keys: u64,
    handled: Arc<Mutex<HashSet<u64>>>,
    /// The last id whose push was confirmed.
    last: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

impl Producer {
    async fn run(self) -> Pushed {
        let mut random = Random::new(3);
        // Above the ids that were there before.
        let (mut pushed, mut last) = (Pushed::default(), 10_000);
        while !self.ends.load(Ordering::Relaxed) {
            // Some of them may never come.
            let waiting = pushed
                .all
                .len()
                .saturating_sub(self.handled.lock().unwrap().len());
            if waiting > AHEAD + pushed.unknown.len() {
                sleep(Duration::from_millis(2)).await;
                continue;
            }
            let count = 1 + random.below(8);
            let batch: Vec<_> = (last + 1..=last + count)
                .map(|id| (random.below(self.keys), id))
                .collect();
            last += count;
            let messages: Vec<_> = batch.iter().map(|(key, id)| message(*key, *id)).collect();
            let ids = batch.iter().map(|(key, id)| (*id, *key));
            match self.queue.push_all(&messages).await {
                Ok(()) => {
                    pushed.all.extend(ids);
                    self.last.store(last, Ordering::Relaxed);
                }
                Err(error) => {
                    if is_unknown(&error) {
                        pushed.unknown.extend(batch.iter().map(|(_, id)| *id));
                        pushed.all.extend(ids);
                    }
                    sleep(Duration::from_millis(5)).await;
                }
            }
        }
        pushed
    }
}
