//! A source over a system that loses requests and answers, cannot answer, and gives messages to
//! others: random runs in simulated time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use keylane_source::{
    Deliveries, Features, Outcome, RawMessage, Received, Settlement, Source, SourceError,
};
use proptest::prelude::*;
use tokio::time::{Instant, sleep};

use crate::changes::Changes;
use crate::lock::lock;
use crate::position::WorkerPosition;
use crate::source::WorkerSource;
use crate::system::{End, Entry, Handed, Memory, Reply, Rest, System};

const LEASE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
struct Fault;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault")
    }
}

impl std::error::Error for Fault {}

/// What happens to a call.
#[derive(Clone, Copy, Debug)]
enum Luck {
    Good,
    /// It takes this many milliseconds.
    Slow(u64),
    Unable,
    RequestLost,
    AnswerLost,
    /// Before it, all workers lose their messages.
    Expired,
    /// Before it, the state is saved.
    Saved,
    /// Before it, the server goes back to the state that was saved.
    Restored,
}

fn luck() -> impl Strategy<Value = Luck> {
    prop_oneof![
        12 => Just(Luck::Good),
        2 => (1..2_000_u64).prop_map(Luck::Slow),
        1 => Just(Luck::Unable),
        1 => Just(Luck::RequestLost),
        1 => Just(Luck::AnswerLost),
        1 => Just(Luck::Expired),
        1 => Just(Luck::Saved),
        1 => Just(Luck::Restored),
    ]
}

/// Messages are numbers. A worker that enters again gets all its messages again.
#[derive(Debug, Default)]
struct Server {
    luck: VecDeque<Luck>,
    waiting: BTreeSet<u64>,
    workers: BTreeMap<u64, Known>,
    done: BTreeSet<u64>,
    /// The attempts that were noted.
    noted: BTreeMap<u64, u32>,
    /// How often all workers have lost their messages.
    expiries: u64,
    exchanges: u64,
    saved: Option<Saved>,
    restored: u64,
}

/// A state that was saved: messages that wait, workers, messages that are done, attempts.
type Saved = (
    BTreeSet<u64>,
    BTreeMap<u64, Known>,
    BTreeSet<u64>,
    BTreeMap<u64, u32>,
);

/// A worker that the server knows.
#[derive(Clone, Debug, Default)]
struct Known {
    held: BTreeSet<u64>,
    /// Messages that it gets again.
    again: BTreeSet<u64>,
    /// How often it has entered and exchanged.
    exchanges: u64,
}

#[derive(Debug, Default)]
struct Simulated(Mutex<(Server, u64)>);

#[derive(Debug)]
struct Worker {
    name: u64,
    /// How many exchanges it knows to be done.
    heard: Mutex<u64>,
}

impl Simulated {
    fn server(&self) -> MutexGuard<'_, (Server, u64)> {
        lock(&self.0)
    }

    /// Has a call run, or fail.
    async fn call<T>(
        &self,
        run: impl FnOnce(&mut Server) -> Result<T, End<Fault>>,
    ) -> Result<T, End<Fault>> {
        let luck = self.server().0.luck.pop_front().unwrap_or(Luck::Good);
        match luck {
            Luck::Slow(millis) => sleep(Duration::from_millis(millis)).await,
            Luck::Unable => return Err(End::Unable(Fault)),
            Luck::RequestLost => return Err(End::Failed(Fault)),
            Luck::Expired => {
                let server = &mut self.server().0;
                server.expiries += 1;
                for (_, worker) in std::mem::take(&mut server.workers) {
                    server.waiting.extend(worker.held);
                }
            }
            Luck::Saved => {
                let server = &mut self.server().0;
                server.saved = Some((
                    server.waiting.clone(),
                    server.workers.clone(),
                    server.done.clone(),
                    server.noted.clone(),
                ));
            }
            Luck::Restored => {
                let server = &mut self.server().0;
                if let Some(saved) = server.saved.clone() {
                    let now = std::mem::take(&mut server.workers);
                    (server.waiting, server.workers, server.done, server.noted) = saved;
                    // The lease of a worker that is gone has run out.
                    let gone = server
                        .workers
                        .extract_if(.., |name, _| !now.contains_key(name));
                    let gone = gone.flat_map(|(_, worker)| worker.held);
                    server.waiting.extend(gone);
                    server.expiries += 1;
                    server.restored += 1;
                }
            }
            Luck::Good | Luck::AnswerLost => sleep(Duration::from_millis(1)).await,
        }
        let answer = run(&mut self.server().0);
        match luck {
            Luck::AnswerLost => Err(End::Failed(Fault)),
            _ => answer,
        }
    }
}

impl Server {
    fn apply(&mut self, worker: u64, changes: &Changes<u64>, came: usize) {
        let Some(known) = self.workers.get_mut(&worker) else {
            return;
        };
        for id in changes.settled() {
            if known.held.remove(id) {
                known.again.remove(id);
                self.done.insert(*id);
            }
        }
        for (id, attempts) in &changes.notes {
            if known.held.contains(id) {
                self.noted.insert(*id, *attempts);
            }
        }
        let again = changes.again.iter().take(came);
        known
            .again
            .extend(again.filter(|id| known.held.contains(id)));
    }
}

impl System for Simulated {
    type Id = u64;
    type Worker = Worker;
    type Link = ();
    type Error = Fault;

    fn name(&self) -> String {
        "simulated".to_owned()
    }

    fn features(&self) -> Features {
        Features::new().survives_restart().counts_attempts()
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn most(&self) -> usize {
        4
    }

    fn worker(&self) -> Worker {
        let next = &mut self.server().1;
        *next += 1;
        Worker {
            name: *next,
            heard: Mutex::new(0),
        }
    }

    async fn connect(&self) -> Result<(), Fault> {
        self.call(|_| Ok(())).await.map_err(|_| Fault)
    }

    async fn enter(
        &self,
        (): &mut (),
        worker: &Worker,
        entry: Entry<'_, u64>,
    ) -> Result<Memory, End<Fault>> {
        let exchanges = self.call(|server| {
            if entry.is_new {
                server.workers.insert(worker.name, Known::default());
            }
            server.apply(worker.name, entry.settled, 0);
            let known = server.workers.get_mut(&worker.name).ok_or(End::Lost)?;
            known.again = known.held.clone();
            known.exchanges += 1;
            Ok(known.exchanges)
        });
        let exchanges = exchanges.await?;
        let before = std::mem::replace(&mut *lock(&worker.heard), exchanges);
        Ok(match exchanges <= before {
            true => Memory::Earlier,
            false => Memory::Whole,
        })
    }

    async fn exchange(
        &self,
        (): &mut (),
        worker: &Worker,
        changes: &Changes<u64>,
        most: usize,
    ) -> Result<Reply<u64>, End<Fault>> {
        let heard = *lock(&worker.heard);
        let reply = self.call(|server| {
            let known = server.workers.get(&worker.name).ok_or(End::Lost)?;
            if known.exchanges < heard {
                return Err(End::Forgotten);
            }
            if known.exchanges != heard {
                return Err(End::Missed);
            }
            // What does not fit stays with the source.
            let came = changes.again.len().min(most);
            server.apply(worker.name, changes, came);
            server.exchanges += 1;
            let Server {
                waiting,
                workers,
                noted,
                ..
            } = server;
            let known = workers.get_mut(&worker.name).ok_or(End::Lost)?;
            known.exchanges += 1;
            let mut ids = Vec::new();
            while ids.len() < most
                && let Some(id) = known.again.pop_first()
            {
                ids.push(id);
            }
            while ids.len() < most
                && let Some(id) = waiting.pop_first()
            {
                known.held.insert(id);
                ids.push(id);
            }
            let handed = |id: u64| Handed {
                id,
                message: RawMessage::new(id.to_string()),
                attempts: noted.get(&id).copied().unwrap_or(0),
                noted: noted.get(&id).copied().unwrap_or(0) + 1,
            };
            let rest = match waiting.is_empty() && known.again.is_empty() {
                true => Rest::Nothing,
                false => Rest::More,
            };
            let messages = ids.into_iter().map(handed).collect();
            Ok(Reply {
                messages,
                came,
                rest,
            })
        });
        let reply = reply.await?;
        *lock(&worker.heard) += 1;
        Ok(reply)
    }

    async fn leave(&self, (): &mut (), worker: &Worker) -> Result<(), Fault> {
        let left = self.call(|server| {
            let known = server.workers.remove(&worker.name).unwrap_or_default();
            server.waiting.extend(known.held);
            Ok(())
        });
        left.await.map_err(|_| Fault)
    }
}

/// What the driver does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Receive(usize),
    /// Drops `receive` after this many milliseconds.
    Glance(u64),
    Settle(usize),
    Return(usize),
    /// Asks for the second attempt at a message.
    Retry(usize),
    /// Returns a message whose attempt was dropped.
    Drop(usize),
    Confirm,
    /// Drops `confirm` after this many milliseconds.
    DropConfirm(u64),
    Open,
    /// Drops `open` after this many milliseconds.
    DropOpen(u64),
    /// Closes the source, or drops that after this many milliseconds.
    Close(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..6_usize).prop_map(Step::Receive),
        2 => (0..5_u64).prop_map(Step::Glance),
        5 => (0..6_usize).prop_map(Step::Settle),
        1 => (0..6_usize).prop_map(Step::Return),
        1 => (0..6_usize).prop_map(Step::Retry),
        1 => (0..6_usize).prop_map(Step::Drop),
        1 => Just(Step::Confirm),
        1 => (0..3_u64).prop_map(Step::DropConfirm),
        1 => Just(Step::Open),
        1 => (0..4_u64).prop_map(Step::DropOpen),
        1 => (0..3_u64).prop_map(Step::Close),
    ]
}

type Position = WorkerPosition<u64>;

struct Driver {
    source: WorkerSource<Simulated>,
    system: Arc<Simulated>,
    /// Each with the number of expiries before.
    held: Vec<(Position, u64)>,
    /// How many attempts at those have failed.
    failed: BTreeMap<u64, u32>,
    /// How many attempts have failed that were noted.
    least: BTreeMap<u64, u32>,
    restored: u64,
    /// Settled as done, with the number of expiries before they were handed over.
    settled: BTreeMap<u64, u64>,
    /// The number of expiries when the source was opened.
    expiries: u64,
    /// How many attempts have failed, or have started and may have.
    tried: BTreeMap<u64, u32>,
}

impl Driver {
    async fn open(&mut self) {
        self.held.clear();
        // What happens from here on may be before a message is handed over.
        self.expiries = self.system.server().0.expiries;
        while self.source.open().await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// So many attempts have failed: those that the server has noted count.
    fn has_failed(&mut self, id: u64, failed: u32) {
        let noted = self.system.server().0.noted.get(&id).copied();
        let least = self.least.entry(id).or_default();
        *least = (*least).max(failed.min(noted.unwrap_or(0)));
        self.failed.insert(id, failed);
    }

    fn take(&mut self, into: &mut Deliveries<RawMessage, Position>) {
        for delivery in into.take() {
            let id = *delivery.position.id();
            assert!(!self.is_settled(id), "{id} has settled, and comes again");
            let tried = self.tried.get(&id).copied().unwrap_or(0);
            let restored = self.system.server().0.restored;
            assert!(
                // Of a message that had settled it is not known any more which attempts were dropped.
                delivery.attempts <= tried || restored > 0,
                "{id}: {} of {tried} attempts",
                delivery.attempts
            );
            if std::mem::replace(&mut self.restored, restored) != restored {
                self.least.clear();
            }
            let least = self.least.get(&id).copied().unwrap_or(0);
            assert!(
                delivery.attempts >= least,
                "{id}: {} attempts, and {least} that were noted have failed",
                delivery.attempts
            );
            self.failed.insert(id, delivery.attempts);
            let is_held = self.held.iter().any(|(held, _)| *held.id() == id);
            assert!(!is_held, "{id} is held, and comes again in one generation");
            // It was handed over before the last call at the latest.
            self.held.push((delivery.position, self.expiries));
        }
    }

    async fn receive(&mut self, room: usize, limit: Duration) {
        let mut into = Deliveries::new(room, Instant::now() + Duration::from_secs(1));
        let received = tokio::time::timeout(limit, self.source.receive(&mut into)).await;
        assert!(into.len() <= room);
        self.take(&mut into);
        match received {
            Err(_) | Ok(Ok(Received::Messages | Received::Idle)) => {}
            Ok(Ok(other)) => panic!("{other:?}"),
            Ok(Err(_)) => self.open().await,
        }
    }

    /// `outcome` is called with the number of attempts.
    async fn settle(&mut self, at: usize, outcome: impl Fn(u32) -> Outcome) {
        if self.held.is_empty() {
            return;
        }
        let (position, expiries) = self.held.remove(at % self.held.len());
        let id = *position.id();
        let tried = self.tried.entry(id).or_default();
        *tried = (*tried).max(1);
        let outcome = outcome(*tried);
        if let Outcome::Returned { attempts } = outcome {
            self.has_failed(id, attempts);
        }
        let guard = self.source.start_guard().expect("it counts starts");
        guard.settles(0, &position, outcome);
        if outcome == Outcome::Done {
            self.settled.insert(id, expiries);
        }
        let settled = self
            .source
            .settle(&[Settlement::new(position, outcome)])
            .await;
        if settled.is_err() {
            self.open().await;
        }
    }

    /// Whether a message has settled, and no worker has lost its messages since.
    fn is_settled(&self, id: u64) -> bool {
        let expiries = self.system.server().0.expiries;
        self.settled.get(&id) == Some(&expiries)
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.source.confirm().await?;
        for id in self.settled.keys() {
            let is_done = self.system.server().0.done.contains(id);
            assert!(
                is_done || !self.is_settled(*id),
                "{id} is confirmed, and not done"
            );
        }
        Ok(())
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Receive(room) => self.receive(room, Duration::from_secs(60)).await,
            Step::Glance(millis) => self.receive(3, Duration::from_millis(millis)).await,
            Step::Settle(at) => self.settle(at, |_| Outcome::Done).await,
            Step::Return(at) => self.settle(at, Outcome::returned).await,
            Step::Retry(at) => {
                let Some((position, _)) = self.held.get(at) else {
                    return;
                };
                let guard = self.source.start_guard().expect("it counts starts");
                let attempt = position.noted + 1;
                let tried = self.tried.entry(*position.id()).or_default();
                // The one before has failed.
                *tried = (*tried).max(position.noted);
                let (id, before, position) = (*position.id(), position.noted, position.clone());
                let position = &position;
                self.has_failed(id, before);
                let tried = self.tried.entry(id).or_default();
                for _ in 0..4 {
                    if guard.starts(0, position, attempt).is_ok() {
                        let noted = self.system.server().0.noted.get(position.id()).copied();
                        assert_eq!(noted, Some(attempt), "it starts unnoted");
                        *tried = (*tried).max(attempt);
                    }
                    tokio::task::yield_now().await;
                }
            }
            Step::Drop(at) => {
                if let Some((position, _)) = self.held.get(at) {
                    let failed = self.failed[position.id()];
                    self.settle(at, |_| Outcome::returned(failed)).await;
                }
            }
            Step::DropConfirm(millis) => {
                let limit = Duration::from_millis(millis);
                match tokio::time::timeout(limit, self.confirm()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => self.open().await,
                }
            }
            Step::DropOpen(millis) => {
                self.held.clear();
                let limit = Duration::from_millis(millis);
                let _ = tokio::time::timeout(limit, self.source.open()).await;
                self.open().await;
            }
            Step::Close(millis) => {
                if self.confirm().await.is_ok() {
                    self.held.clear();
                    let limit = Duration::from_millis(millis);
                    let closed = tokio::time::timeout(limit, self.source.close()).await;
                    if !matches!(closed, Ok(Ok(()))) {
                        // Its lease runs out.
                        let server = &mut self.system.server().0;
                        server.expiries += 1;
                        for (_, worker) in std::mem::take(&mut server.workers) {
                            server.waiting.extend(worker.held);
                        }
                    }
                }
                self.open().await;
            }
            Step::Confirm => {
                if self.confirm().await.is_err() {
                    self.open().await;
                }
            }
            Step::Open => self.open().await,
        }
    }
}

async fn run(messages: u64, luck: Vec<Luck>, steps: Vec<Step>) {
    let system = Arc::new(Simulated::default());
    system.server().0.waiting = (1..=messages).collect();
    let mut driver = Driver {
        source: WorkerSource::new(Arc::clone(&system)),
        system: Arc::clone(&system),
        held: Vec::new(),
        failed: BTreeMap::new(),
        least: BTreeMap::new(),
        restored: 0,
        settled: BTreeMap::new(),
        expiries: 0,
        tried: BTreeMap::new(),
    };
    driver.open().await;
    system.server().0.luck = luck.into();
    let (since, count) = (Instant::now(), steps.len() as u64);
    for step in steps {
        driver.step(step).await;
    }
    // It renews its lease three times as often as that ends, and asks when something has happened.
    let seconds = since.elapsed().as_secs();
    let exchanges = system.server().0.exchanges;
    let most = 4 * seconds + 20 * (count + 1);
    assert!(
        exchanges <= most,
        "{exchanges} exchanges in {seconds} s and {count} steps"
    );
    // From here on all goes well: everything gets done.
    system.server().0.luck.clear();
    for _ in 0..1_000 {
        if system.server().0.done.len() == messages as usize {
            break;
        }
        driver.receive(8, Duration::from_secs(60)).await;
        while !driver.held.is_empty() {
            driver.settle(0, |_| Outcome::Done).await;
        }
        if driver.confirm().await.is_err() {
            driver.open().await;
        }
    }
    assert_eq!(
        system.server().0.done.len(),
        messages as usize,
        "a message is lost"
    );
    // A message that was lost as it settled may never come back.
    let keeps_nothing = driver.source.starts.is_empty() || system.server().0.expiries > 0;
    assert!(keeps_nothing, "it keeps what has settled");
    driver.source.close().await.expect("it leaves");
    assert!(system.server().0.workers.is_empty(), "the worker has left");
}

proptest! {
    #![proptest_config(testkit_cases::cases(500))]

    #[test]
    fn messages_are_handed_over_until_they_are_done_and_no_longer(
        messages in 1..12_u64,
        luck in prop::collection::vec(luck(), 0..60),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(run(messages, luck, steps));
    }
}
