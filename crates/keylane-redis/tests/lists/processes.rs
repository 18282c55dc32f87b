//! Workers that are processes: they are killed, and paused for longer than their leases. The test
//! checks the history of all of them, which a fenced sink has recorded.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_redis::{ListKey, ListQueue, Redis};
use keylane_testkit::scenario::{Random, boxed, by_key};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use testkit_processes::{Process, told_to_stop};
use testkit_servers::RedisKind;
use tokio::time::sleep;

use crate::sink::{Entry, Place, Sink, What};
use crate::state::{beside, check, check_idle};
use crate::story::{Fault, Story};
use crate::support::{connect, own, until};

const LIST: &str = "orders";
const KEYS: u64 = 40;
const WORKERS: usize = 4;
const LEASE: Duration = Duration::from_secs(1);

/// The limit of waiting elements.
const AHEAD: u64 = 500;

/// The variable with the settings of a worker. Without it the test that is the worker does nothing.
const WORKER: &str = "KEYLANE_REDIS_WORKER";

/// How often a worker is killed: 20 times by default.
fn kills() -> usize {
    count("KEYLANE_REDIS_KILLS")
}

/// How often a worker is paused for longer than its lease: 20 times by default.
fn stops() -> usize {
    count("KEYLANE_REDIS_STOPS")
}

fn count(name: &str) -> usize {
    std::env::var(name).map_or(20, |count| count.parse().unwrap())
}

/// The behavior of a worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Each handler takes a few milliseconds.
    Busy,
    /// A handler waits in its middle for a word, and the sink compares tokens …
    Fenced,
    /// … or accepts everything.
    Unfenced,
}

impl Mode {
    const ALL: [(Self, &str); 3] = [
        (Self::Busy, "busy"),
        (Self::Fenced, "fenced"),
        (Self::Unfenced, "unfenced"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(mode, _)| *mode == self).unwrap().1
    }

    fn of(name: &str) -> Self {
        Self::ALL
            .iter()
            .find(|(_, other)| *other == name)
            .unwrap()
            .0
    }
}

fn queue(url: &str) -> ListQueue {
    let builder = ListQueue::builder(&Redis::at(url).unwrap(), LIST);
    let builder = builder.key(ListKey::json("key")).lease(LEASE);
    builder.build().unwrap()
}

fn payload(key: u64, id: u64) -> String {
    format!(r#"{{"key":{key},"id":{id}}}"#)
}

/// Returns the id in a payload, at any place.
fn id_of(bytes: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(bytes);
    let (_, after) = text.split_once(r#""id":"#).expect("an id");
    after.split_once('}').unwrap().0.parse().unwrap()
}

/// The worker: this program again. It leaves when its input ends.
#[test]
fn worker() {
    let Ok(task) = std::env::var(WORKER) else {
        return;
    };
    let task: Vec<_> = task.split(' ').collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work(task[0], task[1], Mode::of(task[2])));
}

async fn work(list: &str, sink: &str, mode: Mode) {
    let sink = Sink::at(sink, mode != Mode::Unfenced).await;
    let own = std::process::id();
    let journal = sink.clone();
    let handler = move |message: RawMessage| {
        let sink = sink.clone();
        async move {
            let token = ListQueue::token(&message).unwrap();
            let key = std::str::from_utf8(message.key.as_deref().unwrap()).unwrap();
            let (key, id) = (key.parse().unwrap(), id_of(&message.payload));
            if sink.claim(own, key, id, token).await {
                match mode {
                    Mode::Busy => sleep(Duration::from_millis(id % 7)).await,
                    _ => sink.hears("go").await,
                }
                sink.effect(own, key, id, token).await;
            }
            Ok(())
        }
    };
    // The elements of a worker that died have had one more attempt.
    let dispatcher = by_key()
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(100_000))
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(handler))
        .unwrap();
    let settings = IntakeSettings::new()
        .held(64)
        .longest_pause(Duration::from_millis(200))
        .revoke_within(Duration::from_secs(5));
    let intake = dispatcher.consume_with(queue(list).source(), settings);
    let intake = intake.unwrap();
    let end = tokio::spawn(told_to_stop());
    let mut restarts = 0;
    while !end.is_finished() {
        let now = intake.stats().restarts;
        if now > restarts {
            restarts = now;
            journal.lost(own).await;
        }
        sleep(Duration::from_millis(5)).await;
    }
    intake.stop().within(Duration::from_secs(10)).await;
}

struct Worker {
    process: Process,
    was_stopped: bool,
}

impl Worker {
    fn start(list: &testkit_servers::Redis, sink: &testkit_servers::Redis, mode: Mode) -> Self {
        let task = [list.url(), sink.url(), mode.name().to_owned()].join(" ");
        Self {
            process: Process::start("processes::worker", [(WORKER, task)]),
            was_stopped: false,
        }
    }
}

/// The names of the workers of a process in the server.
async fn names(server: &mut MultiplexedConnection, process: u32) -> Vec<String> {
    let mut range = cmd("ZRANGE");
    range.arg(beside(LIST, "workers")).arg(0).arg(-1);
    let all: Vec<String> = range.query_async(server).await.unwrap();
    let own = format!("{process}-");
    all.into_iter()
        .filter(|name| name.starts_with(&own))
        .collect()
}

/// Records the elements of a process that is dead or paused: all that can come again because of it.
async fn fault(server: &mut MultiplexedConnection, process: u32, story: &mut Story) {
    let mut held = HashSet::new();
    let names = names(server, process).await;
    for name in &names {
        let mut values = cmd("HVALS");
        values.arg(beside(LIST, &format!("work:{name}")));
        let elements: Vec<Vec<u8>> = values.query_async(server).await.unwrap();
        held.extend(elements.iter().map(|element| id_of(element)));
    }
    // The machine was slower than the lease.
    if names.is_empty() || self::names(server, process).await != names {
        story.unread.insert(process);
    }
    story.faults.push(Fault {
        place: Place::MAX,
        worker: Some(process),
        held,
    });
}

/// Pushes until it is stopped, not too far ahead of the handled elements: every other element is
/// plain, like those of other programs. Returns the key of each.
async fn produce(url: String, ends: Arc<AtomicBool>, done: Arc<AtomicU64>) -> BTreeMap<u64, u64> {
    let mut server = connect(&url).await;
    let queue = queue(&url);
    let mut random = Random::new(7);
    let mut pushed = BTreeMap::new();
    while !ends.load(Ordering::Relaxed) {
        let first = pushed.len() as u64 + 1;
        if first > done.load(Ordering::Relaxed) + AHEAD {
            sleep(Duration::from_millis(5)).await;
            continue;
        }
        let batch: Vec<_> = (first..first + 10)
            .map(|id| (id, random.below(KEYS)))
            .collect();
        if random.one_in(2) {
            let messages: Vec<_> = batch
                .iter()
                .map(|(id, key)| RawMessage::new(payload(*key, *id)).key(key.to_string()))
                .collect();
            queue.push_all(&messages).await.unwrap();
        } else {
            let mut push = cmd("LPUSH");
            push.arg(LIST);
            for (id, key) in &batch {
                push.arg(payload(*key, *id));
            }
            push.exec_async(&mut server).await.unwrap();
        }
        pushed.extend(batch);
    }
    pushed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_processes_are_killed_and_stand_still() {
    let (list, sink) = (own(RedisKind::Redis7).await, own(RedisKind::Redis7).await);
    let mut server = connect(&list.url()).await;
    let journal = Sink::at(&sink.url(), true).await;
    let (ends, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let producer = tokio::spawn(produce(list.url(), Arc::clone(&ends), Arc::clone(&done)));
    let mut workers = Vec::from_iter((0..WORKERS).map(|_| Worker::start(&list, &sink, Mode::Busy)));
    let mut story = Story::default();
    let mut random = Random::new(11);
    let (mut kills, mut stops) = (kills(), stops());
    let faults = (kills, stops);
    // So that the producer knows the handled elements.
    let progress = async |more: usize| {
        let goal = journal.len().await + more;
        until("more is done", async || {
            let len = journal.len().await;
            done.store(len as u64 / 2, Ordering::Relaxed);
            len >= goal
        })
        .await;
    };
    progress(200).await;
    while kills + stops > 0 {
        // Some workers at a time are paused, and one goes on.
        let mut standing = Vec::new();
        for (at, worker) in workers.iter_mut().enumerate().take(WORKERS - 1) {
            if stops == 0 || worker.was_stopped || (kills > 0 && random.one_in(3)) {
                continue;
            }
            progress(random.below(40) as usize).await;
            worker.process.pause().await;
            worker.was_stopped = true;
            fault(&mut server, worker.process.id(), &mut story).await;
            standing.push(at);
            stops -= 1;
        }
        for (at, worker) in workers.iter_mut().enumerate() {
            // A worker that was paused before, also while it is, and sometimes another one.
            let is_next = worker.was_stopped && random.one_in(2);
            if kills == 0 || !(is_next || stops == 0 || random.one_in(8)) {
                continue;
            }
            progress(random.below(40) as usize).await;
            worker.process.kill();
            // The elements of a paused worker are recorded already.
            if !standing.contains(&at) {
                fault(&mut server, worker.process.id(), &mut story).await;
            }
            *worker = Worker::start(&list, &sink, Mode::Busy);
            standing.retain(|other| *other != at);
            kills -= 1;
        }
        for at in &standing {
            let process = workers[*at].process.id();
            let mut server = server.clone();
            until("what it had is given back", async || {
                names(&mut server, process).await.is_empty()
            })
            .await;
        }
        for at in standing {
            // Its earlier calls are long done.
            let place = journal.len().await;
            let process = workers[at].process.id();
            let mut own = story
                .faults
                .iter_mut()
                .filter(|fault| fault.worker == Some(process));
            own.next_back().expect("its fault").place = place;
            workers[at].process.resume();
            if kills == 0 {
                // It may be paused once more.
                workers[at].was_stopped = false;
            }
        }
        check(&mut server, LIST).await;
        // Each worker in turn is the one that goes on.
        workers.rotate_left(1);
        progress(50).await;
    }
    ends.store(true, Ordering::Relaxed);
    story.pushed = producer.await.unwrap();
    let mut known = HashSet::new();
    let mut read = 0;
    until("all is handled", async || {
        let new = journal.read(read).await;
        read += new.len();
        let ended = new
            .iter()
            .filter(|entry| entry.what == What::End && entry.is_taken);
        known.extend(ended.map(|entry| entry.id));
        known.len() == story.pushed.len()
    })
    .await;
    for worker in workers {
        worker.process.stop().await;
    }
    check_idle(&mut server, LIST).await;
    story.journal = journal.read(0).await;
    println!("{} kills, {} stops: {}", faults.0, faults.1, story.judge());
}

/// Two workers and one key. The owner is paused in the middle of its handler, and goes on when the
/// other one has done its work. Returns its write then, and the highest token before.
async fn stale_write(mode: Mode) -> (Entry, u64) {
    let (list, sink) = (own(RedisKind::Redis7).await, own(RedisKind::Redis7).await);
    let mut server = connect(&list.url()).await;
    let journal = Sink::at(&sink.url(), true).await;
    let workers = [0, 1].map(|_| Worker::start(&list, &sink, mode));
    queue(&list.url())
        .push(&RawMessage::new(payload(1, 1)).key("1"))
        .await
        .unwrap();
    let starts = async |count| {
        until("a handler is in its middle", async || {
            journal.len().await >= count
        })
        .await;
        journal.read(count - 1).await[0]
    };
    let first = starts(1).await;
    let late = workers
        .iter()
        .find(|worker| worker.process.id() == first.worker)
        .unwrap();
    late.process.pause().await;
    let second = starts(2).await;
    assert_ne!(second.worker, first.worker);
    assert!(second.token > first.token, "{first:?} {second:?}");
    journal.say("go").await;
    let end = starts(3).await;
    assert_eq!(
        (end.what, end.worker, end.is_taken),
        (What::End, second.worker, true)
    );
    late.process.resume();
    until("it has ended, too", async || {
        let journal = journal.read(3).await;
        journal.iter().any(|entry| entry.what == What::End)
    })
    .await;
    let stale = journal.read(3).await;
    let stale = stale.iter().find(|entry| entry.what == What::End).unwrap();
    assert_eq!((stale.worker, stale.token), (first.worker, first.token));
    for worker in workers {
        worker.process.stop().await;
    }
    check_idle(&mut server, LIST).await;
    (*stale, second.token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_sink_refuses_a_worker_that_stood_still() {
    let (stale, highest) = stale_write(Mode::Fenced).await;
    assert!(!stale.is_taken && stale.token < highest, "{stale:?}");
}

/// The same test without tokens: the same worker writes last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_fence_a_worker_that_stood_still_writes_last() {
    let (stale, highest) = stale_write(Mode::Unfenced).await;
    assert!(stale.is_taken && stale.token < highest, "{stale:?}");
}
