//! Producers and workers whose connections are killed all the time, on a server that is started
//! again in between. What they have done is judged: nothing is lost, nothing is invented, each key
//! is in the order of its commits, and what is handled twice has a reason.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_inbox::{Accepted, NewMessage};
use keylane_sql::{Database, Settings, SqlInbox, Tables, sqlx};
use keylane_testkit::scenario::Random;
use sqlx::{MySqlPool, PgPool};
use testkit_servers::proxy::Proxy;
use tokio::time::{Instant, sleep};

use crate::rig::{Committed, Entry, Log, Own, Story, TTL, What, Work, Worker, message};
use crate::support::{Kind, Place};

/// Tries until it goes well.
macro_rules! retried {
    ($call:expr) => {{
        let until = Instant::now() + PATIENCE;
        loop {
            match $call.await {
                Ok(answer) => break answer,
                Err(error) => assert!(Instant::now() < until, "{error:?}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }};
}

const PRODUCERS: u64 = 8;
const WORKERS: usize = 3;
const KEYS: u64 = 200;

/// How long it may take to handle what is left when nothing fails any more.
const PATIENCE: Duration = Duration::from_secs(180);

/// How many messages are committed: 2,000 unless set.
fn messages() -> u64 {
    std::env::var("KEYLANE_CHAOS_MESSAGES").map_or(2_000, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_order_and_loses_nothing() {
    chaos(Kind::Postgres, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_keeps_order_and_loses_nothing() {
    chaos(Kind::MariaDb, false).await;
}

/// Where transactions give way to each other instead of waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serializable_postgres_keeps_order_and_loses_nothing() {
    chaos(Kind::Postgres, true).await;
}

async fn chaos(kind: Kind, serializable: bool) {
    let server = Own::start(kind).await;
    let place = Arc::new(server.place().await.migrated().await);
    if serializable {
        place
            .execute(
                "do $$ begin execute format('alter database %I set default_transaction_isolation
                    = serializable', current_database()); end $$",
            )
            .await;
    }
    let (log, ledger) = (Log::default(), Arc::new(Ledger::default()));
    // One of the workers is cut off for longer than its claims last, now and then.
    let proxy = Proxy::to(SocketAddr::from((
        Ipv4Addr::LOCALHOST,
        port_of(&place.address),
    )))
    .await
    .unwrap();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let address = match number {
            0 => place.address_by(proxy.port()),
            _ => place.address.clone(),
        };
        let mut work = Work::new();
        work.source = work.source.keys(100);
        work.takes = |id| match id % 97 {
            0 => Duration::from_millis(60),
            n => Duration::from_millis(n % 4),
        };
        work.fails = |id| id.is_multiple_of(50);
        workers.push(Worker::start(&address, number, &log, work).await);
    }
    let goal = match serializable {
        true => messages() / 4,
        false => messages(),
    };
    let began = Instant::now();
    let producers = Vec::from_iter((0..PRODUCERS).map(|number| {
        let producer = Producer::new(number, &place, &log, &ledger, goal);
        tokio::spawn(producer.produce())
    }));
    let is_over = Arc::new(AtomicBool::new(false));
    let watcher = tokio::spawn(watch(
        Arc::clone(&place),
        log.clone(),
        Arc::clone(&ledger),
        Arc::clone(&is_over),
    ));
    let cuts = tokio::spawn(cut(proxy, Arc::clone(&is_over)));
    let mut kills = 0;
    let mut is_restarted = false;
    while ledger.committed() < goal || !is_restarted {
        sleep(Duration::from_millis(200)).await;
        place.kill_connections().await;
        kills += 1;
        if !is_restarted && ledger.committed() >= goal / 2 {
            server.restart().await;
            is_restarted = true;
        }
    }
    for producer in producers {
        producer.await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let proxy = cuts.await.unwrap();
    let healed = Instant::now();
    let all: HashSet<u64> = ledger.lock().keys().copied().collect();
    while !all.is_subset(&log.handled()) && healed.elapsed() < PATIENCE {
        sleep(Duration::from_millis(20)).await;
    }
    let gone = watcher.await.unwrap();
    let (waited, lasted) = (healed.elapsed(), began.elapsed());
    let story = Story {
        entries: log.entries(),
        committed: ledger.lock().clone(),
        gone,
    };
    let verdict = story.judge();
    println!(
        "{kind:?}{}: {} messages in {lasted:?}, {} rolled back, {kills} kills; {} seen gone; all \
         handled {waited:?} after the last fault; {verdict}",
        if serializable { ", serializable" } else { "" },
        story.committed.len(),
        ledger.rolled_back.load(Ordering::Relaxed),
        story.gone.len(),
    );
    assert!(verdict.is_good(), "{verdict:#?}");
    place.is_empty_within(PATIENCE).await;
    place.no_open_transactions().await;
    for worker in &workers {
        worker.stop().await;
    }
    place.no_open_transactions().await;
    drop(proxy);
}

fn port_of(address: &str) -> u16 {
    let (_, after) = address.rsplit_once(':').unwrap();
    after.split_once('/').unwrap().0.parse().unwrap()
}

/// Cuts one worker off, and lets it come back.
async fn cut(proxy: Proxy, is_over: Arc<AtomicBool>) -> Proxy {
    for n in 0.. {
        let is_over = || is_over.load(Ordering::Relaxed);
        for _ in 0..20 {
            if is_over() {
                return proxy;
            }
            sleep(Duration::from_millis(50)).await;
        }
        match n % 3 {
            0 => proxy.cut_to_client(),
            1 => proxy.cut(),
            _ => proxy.cut_to_server(),
        }
        sleep(TTL + Duration::from_millis(1_500)).await;
        proxy.heal();
    }
    proxy
}

/// What was committed.
#[derive(Default)]
struct Ledger {
    committed: Mutex<BTreeMap<u64, Committed>>,
    count: AtomicU64,
    rolled_back: AtomicU64,
    ids: AtomicU64,
}

impl Ledger {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Committed>> {
        self.committed.lock().unwrap()
    }

    fn committed(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Notes which rows are gone. Returns where the log was when that was seen.
async fn watch(
    place: Arc<Place>,
    log: Log,
    ledger: Arc<Ledger>,
    is_over: Arc<AtomicBool>,
) -> HashMap<u64, usize> {
    let mut gone = HashMap::new();
    while !is_over.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(20)).await;
        // Of these it is known that they were there.
        let handled = log.handled();
        let Ok(there) = place.bytes("select id from keylane_messages").await else {
            continue;
        };
        let at = log.position();
        let there: HashSet<u64> = there
            .iter()
            .map(|id| std::str::from_utf8(id).unwrap().parse().unwrap())
            .collect();
        for id in handled {
            if !there.contains(&id) {
                gone.entry(id).or_insert(at);
            }
        }
    }
    drop(ledger);
    gone
}

/// Accepts messages in all ways that there are.
struct Producer {
    place: Arc<Place>,
    log: Log,
    ledger: Arc<Ledger>,
    goal: u64,
    random: Random,
}

/// Where transactions of its own are made.
enum Transactions {
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl Producer {
    fn new(number: u64, place: &Arc<Place>, log: &Log, ledger: &Arc<Ledger>, goal: u64) -> Self {
        Self {
            place: Arc::clone(place),
            log: log.clone(),
            ledger: Arc::clone(ledger),
            goal,
            random: Random::new(number),
        }
    }

    async fn produce(mut self) {
        let address = &self.place.address;
        let database = retried!(Database::connect(address));
        let inbox = retried!(SqlInbox::open(&database, &Tables::new(), Settings::new()));
        let transactions = match self.place.kind {
            Kind::Postgres => Transactions::Postgres(retried!(PgPool::connect(address))),
            Kind::MariaDb => Transactions::MySql(retried!(MySqlPool::connect(address))),
        };
        while self.ledger.committed() < self.goal {
            let count = 1 + self.random.below(24);
            let first = self.ledger.ids.fetch_add(count, Ordering::Relaxed) + 1;
            let batch: Vec<(u64, u64)> = (first..first + count)
                .map(|id| match self.random.one_in(60) {
                    true => (0, id),
                    false => (self.random.below(KEYS), id),
                })
                .collect();
            let messages = || Vec::from_iter(batch.iter().map(|(key, id)| message(*key, *id)));
            let delay = Duration::from_millis(self.random.below(51));
            let asked = self.log.position();
            let accepted = match self.random.below(20) {
                0..12 => retried!(inbox.inbox().accept_many(messages())),
                12..18 => retried!(transactions.accept(&inbox, messages(), delay, true)),
                _ => {
                    let _ = transactions.accept(&inbox, messages(), delay, false).await;
                    self.ledger.rolled_back.fetch_add(count, Ordering::Relaxed);
                    continue;
                }
            };
            let answered = self.log.position();
            let mut ledger = self.ledger.lock();
            for ((key, id), accepted) in batch.iter().zip(&accepted) {
                let committed = Committed {
                    key: *key,
                    sequence: accepted.sequence(),
                    asked,
                    answered,
                };
                ledger.insert(*id, committed);
            }
            self.ledger.count.fetch_add(count, Ordering::Relaxed);
        }
    }
}

impl Transactions {
    async fn accept(
        &self,
        inbox: &SqlInbox,
        messages: Vec<NewMessage>,
        delay: Duration,
        commits: bool,
    ) -> Result<Vec<Accepted>, String> {
        let shown = |error: sqlx::Error| error.to_string();
        match self {
            Self::Postgres(pool) => {
                let mut transaction = pool.begin().await.map_err(shown)?;
                let accepted = inbox.accept_in(&mut *transaction, messages).await;
                let accepted = accepted.map_err(|error| error.to_string())?;
                sleep(delay).await;
                match commits {
                    true => transaction.commit().await.map_err(shown)?,
                    false => transaction.rollback().await.map_err(shown)?,
                }
                Ok(accepted)
            }
            Self::MySql(pool) => {
                let mut transaction = pool.begin().await.map_err(shown)?;
                let accepted = inbox.accept_in(&mut *transaction, messages).await;
                let accepted = accepted.map_err(|error| error.to_string())?;
                sleep(delay).await;
                match commits {
                    true => transaction.commit().await.map_err(shown)?,
                    false => transaction.rollback().await.map_err(shown)?,
                }
                Ok(accepted)
            }
        }
    }
}

/// The judge finds what it is there for.
#[test]
fn bad_stories_are_found() {
    use What::{End, Lost, Start};
    let committed = |id| Committed {
        key: 1,
        sequence: id,
        asked: 0,
        answered: 100,
    };
    let judged = |entries: &[(usize, u64, What)], gone: &[(u64, usize)]| {
        let entries = entries.iter().map(|(worker, id, what)| Entry {
            worker: *worker,
            key: 1,
            id: *id,
            what: *what,
        });
        let story = Story {
            entries: entries.collect(),
            committed: [(1, committed(1)), (2, committed(2))].into(),
            gone: gone.iter().copied().collect(),
        };
        story.judge()
    };
    let (one, two) = (
        [(0, 1, Start), (0, 1, End(true))],
        [(0, 2, Start), (0, 2, End(true))],
    );
    assert!(judged(&[one, two].concat(), &[(1, 2)]).is_good());
    assert_eq!(judged(&one, &[]).lost, [2]);
    assert_eq!(judged(&[two, one].concat(), &[]).reordered, [(2, 1)]);
    let other = [(0, 3, Start), (0, 3, End(true))];
    assert_eq!(
        judged(&[one, two, other].concat(), &[]).invented,
        [3].into()
    );
    // Handled again: by itself, after its worker has lost its claims, and after it was gone.
    assert_eq!(judged(&[one, two, one].concat(), &[]).unexplained, [1]);
    let again = [
        &one[..],
        &[(0, 0, Lost)],
        &[(1, 1, Start), (1, 1, End(true))],
        &two,
    ]
    .concat();
    assert!(judged(&again, &[]).is_good());
    assert_eq!(judged(&again, &[(1, 3)]).risen, [1]);
    // Two workers at a time.
    let at_once = |between: &[(usize, u64, What)]| {
        let second = [(1, 2, Start), (1, 2, End(true)), (0, 1, End(true))];
        judged(&[&one[..1], between, &second].concat(), &[])
    };
    assert_eq!(at_once(&[]).overlapping.len(), 1);
    assert!(at_once(&[(0, 0, Lost)]).overlapping.is_empty());
    // Sequences against the order of commits.
    let early = Committed {
        asked: 0,
        answered: 1,
        ..committed(2)
    };
    let late = Committed {
        asked: 2,
        answered: 3,
        ..committed(1)
    };
    let story = Story {
        committed: [(1, early), (2, late)].into(),
        ..Story::default()
    };
    assert_eq!(story.judge().out_of_sequence, [1]);
}
