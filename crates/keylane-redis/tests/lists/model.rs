//! Workers with random actions at random times, against a model that knows the elements of each of
//! them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use keylane::source::{Deliveries, Outcome, Settlement, Source};
use keylane_redis::{ListPosition, ListQueue, ListSource};
use keylane_testkit::scenario::Random;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use testkit_servers::RedisKind;
use tokio::time::{Instant, sleep, timeout};

use crate::crew::{message, read};
use crate::state::{beside, check, check_idle};
use crate::support::{builder, connect, new_name, shared};

const KEYS: u64 = 6;

/// Returned elements come again behind those on their way. Elements of this key are returned, and
/// have no order.
const RETURNED: u64 = 2;

/// The number of events: 500 by default, in each of three runs.
fn steps() -> u64 {
    std::env::var("KEYLANE_REDIS_STEPS").map_or(500, |count| count.parse().unwrap())
}

struct Worker {
    source: ListSource,
    is_open: bool,
    /// Elements that were handed over and have not settled, of each key in the order of its ids.
    held: BTreeMap<u64, BTreeMap<u64, ListPosition>>,
    /// Acked elements that the server may not know.
    told: HashSet<u64>,
}

impl Worker {
    fn new(queue: &ListQueue) -> Self {
        Self {
            source: queue.source(),
            is_open: false,
            held: BTreeMap::new(),
            told: HashSet::new(),
        }
    }

    fn has(&self, key: u64, id: u64) -> bool {
        self.held
            .get(&key)
            .is_some_and(|held| held.contains_key(&id))
    }
}

/// The state of all elements.
struct Model {
    random: Random,
    workers: Vec<Worker>,
    last: u64,
    /// Elements whose ack is not confirmed, of each key.
    open: BTreeMap<u64, BTreeSet<u64>>,
    /// Elements acked by a worker that does not know whether the server received it: these may come
    /// again.
    acked: HashSet<u64>,
    tokens: HashSet<u64>,
    /// The last token before the test.
    last_token: u64,
    /// The newest token of each element.
    newest: HashMap<u64, u64>,
    again: u64,
}

impl Model {
    /// Records that an element is handed to a worker: all elements before it in its key are acked,
    /// or at the same worker.
    fn handed(&mut self, at: usize, key: u64, id: u64, position: ListPosition) {
        let token = position.id().token();
        assert!(self.tokens.insert(token), "{token} comes twice");
        assert!(
            token > self.last_token,
            "{token} is not above {}",
            self.last_token
        );
        let newest = self.newest.entry(id).or_default();
        // The worker has had it for a while, and does not know that it has lost it.
        let is_late = token < *newest;
        *newest = token.max(*newest);
        let worker = &mut self.workers[at];
        if !is_late {
            let open = self.open.entry(key).or_default();
            assert!(
                open.contains(&id),
                "{id} of {key} comes again after its ack was confirmed"
            );
            for before in open.range(..id) {
                let is_its = worker.has(key, *before) || worker.told.contains(before);
                let is_done = is_its || self.acked.contains(before);
                assert!(
                    is_done || key == RETURNED,
                    "{id} of {key} comes before {before}"
                );
            }
            self.again += u64::from(self.acked.remove(&id));
        }
        let before = worker.held.entry(key).or_default().insert(id, position);
        if let Some(before) = before {
            panic!("{id} of {key} is handed over twice, as {before:?} and {token}");
        }
    }

    /// Records that the worker has lost its elements, or begins again.
    fn lost(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        worker.held.clear();
        worker.told.clear();
        worker.is_open = false;
    }

    async fn receive(&mut self, at: usize, room: usize) {
        if !self.workers[at].is_open {
            let opened = timeout(Duration::from_secs(30), self.workers[at].source.open());
            match opened.await.expect("in time") {
                Ok(()) => self.workers[at].is_open = true,
                Err(error) => {
                    tracing::debug!(%error);
                    return;
                }
            }
        }
        let mut into = Deliveries::new(room, Instant::now() + Duration::from_millis(2));
        let received = self.workers[at].source.receive(&mut into);
        // It may be dropped at any time.
        let received = timeout(Duration::from_millis(10), received).await;
        for delivery in into.take() {
            let (key, id) = read(&delivery.message);
            self.handed(at, key, id, delivery.position);
        }
        if let Ok(Err(_)) = received {
            self.lost(at);
        }
    }

    /// Settles the first elements of a key, or returns the last ones.
    async fn settle(&mut self, at: usize, returns: bool) {
        let worker = &mut self.workers[at];
        let keys: Vec<u64> = worker.held.keys().copied().collect();
        if keys.is_empty() || !worker.is_open {
            return;
        }
        let key = keys[self.random.below(keys.len() as u64) as usize];
        let returns = returns && key == RETURNED;
        let mut held = worker.held.remove(&key).unwrap();
        let count = self.random.below(held.len() as u64 + 1) as usize;
        let border = held.keys().nth(count).copied().unwrap_or(u64::MAX);
        let back = held.split_off(&border);
        let (kept, settled) = match returns {
            true => (held, back),
            false => (back, held),
        };
        let outcome = match returns {
            true => Outcome::returned(self.random.below(3) as u32),
            false => Outcome::Done,
        };
        if !kept.is_empty() {
            worker.held.insert(key, kept);
        }
        let told: Vec<_> = settled
            .values()
            .map(|position| Settlement::new(position.clone(), outcome))
            .collect();
        worker.source.settle(&told).await.unwrap();
        if !returns {
            worker.told.extend(settled.keys());
            self.acked.extend(settled.keys());
        }
    }

    async fn confirm(&mut self, at: usize) {
        if !self.workers[at].is_open {
            return;
        }
        let confirmed = timeout(Duration::from_secs(30), self.workers[at].source.confirm());
        match confirmed.await.expect("in time") {
            Ok(()) => {
                for id in std::mem::take(&mut self.workers[at].told) {
                    // Unless another worker has it by now, which does not know of this.
                    self.acked.remove(&id);
                    for open in self.open.values_mut() {
                        open.remove(&id);
                    }
                }
            }
            Err(_) => self.lost(at),
        }
    }

    async fn push(&mut self, queue: &ListQueue) {
        let count = 1 + self.random.below(20);
        let mut messages = Vec::new();
        for _ in 0..count {
            self.last += 1;
            // Some are hot.
            let key = self.random.below(KEYS).min(self.random.below(KEYS));
            self.open.entry(key).or_default().insert(self.last);
            messages.push(message(key, self.last));
        }
        queue.push_all(&messages).await.unwrap();
    }
}

async fn kill(
    server: &mut MultiplexedConnection,
    queue: &ListQueue,
    list: &str,
    random: &mut Random,
) {
    let workers = beside(list, "workers");
    let mut range = cmd("ZRANGE");
    range.arg(&workers).arg(0).arg(-1);
    let names: Vec<String> = range.query_async(server).await.unwrap();
    if names.is_empty() {
        return;
    }
    let name = &names[random.below(names.len() as u64) as usize];
    let mut expire = cmd("ZADD");
    expire.arg(&workers).arg("XX").arg(0).arg(name);
    expire.exec_async(server).await.unwrap();
    queue.return_expired().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_element_is_in_one_place() {
    for seed in 0..3 {
        run(seed, None).await;
    }
}

/// Tokens at the limits of number types: of a script's numbers, of signed ones, and of unsigned
/// ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_element_is_in_one_place_at_the_ends_of_numbers() {
    let last_tokens = [
        (1 << 53) - 90,
        10_000_000_000_000_000 - 90,
        (1 << 63) - 90,
        u64::MAX - 50_000,
    ];
    for (seed, last_token) in (0..).zip(last_tokens) {
        run(seed % 3, Some(last_token)).await;
    }
}

async fn run(seed: u64, last_token: Option<u64>) {
    let server = shared(RedisKind::ALL[seed as usize]).await;
    let list = new_name("model");
    if let Some(last) = last_token {
        let token = beside(&list, "token");
        server
            .execute(&["SET", &token, &last.to_string()])
            .await
            .unwrap();
    }
    let builder = builder(&server.url(), &list).most_sent(30);
    let builder = match seed {
        1 => builder.exact_starts(),
        _ => builder.most_bytes(200),
    };
    let queue = builder.build().unwrap();
    let mut raw = connect(&server.url()).await;
    let mut model = Model {
        random: Random::new(seed + 100),
        workers: Vec::from_iter((0..4).map(|_| Worker::new(&queue))),
        last: 0,
        open: BTreeMap::new(),
        acked: HashSet::new(),
        tokens: HashSet::new(),
        last_token: last_token.unwrap_or(0),
        newest: HashMap::new(),
        again: 0,
    };
    for step in 0..steps() {
        let at = model.random.below(4) as usize;
        match model.random.below(20) {
            0..3 => model.push(&queue).await,
            3..10 => {
                let room = model.random.below(20) as usize;
                model.receive(at, room).await;
            }
            10..14 => model.settle(at, false).await,
            14 => model.settle(at, true).await,
            15 | 16 => model.confirm(at).await,
            // Its connection is given up, in the middle of any call.
            17 => model.lost(at),
            18 => kill(&mut raw, &queue, &list, &mut model.random).await,
            _ => {
                let closed = timeout(Duration::from_secs(30), model.workers[at].source.close());
                closed.await.expect("in time").ok();
                model.lost(at);
            }
        }
        if step % 4 == 0 {
            check(&mut raw, &list).await;
        }
    }
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let status = queue.status().await.unwrap();
        let mut workers = status.workers.iter();
        if status.waiting == 0 && workers.all(|worker| worker.held + worker.sent == 0) {
            break;
        }
        assert!(Instant::now() < until, "left: {status}");
        for at in 0..4 {
            model.receive(at, 50).await;
            for _ in 0..KEYS {
                model.settle(at, false).await;
            }
            model.confirm(at).await;
        }
        check(&mut raw, &list).await;
        sleep(Duration::from_millis(1)).await;
    }
    for worker in &mut model.workers {
        worker.source.close().await.unwrap();
    }
    let mut open = model.open.values().flatten();
    assert!(open.all(|id| model.acked.contains(id)), "all was acked");
    check_idle(&mut raw, &list).await;
    println!(
        "{}: {} elements, {} hand-outs, {} of them after an ack that was not confirmed",
        RedisKind::ALL[seed as usize],
        model.last,
        model.tokens.len(),
        model.again
    );
}
