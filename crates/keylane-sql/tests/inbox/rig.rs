//! Workers whose handlers write down what they do, and servers that a test may end.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::{Intake, IntakeReport, IntakeSettings, IntakeStats};
use keylane::error::BoxError;
use keylane::source::{
    Deliveries, Features, RawMessage, Received, Settlement, Source, SourceError, SourceLetter,
    StartGuard,
};
use keylane::watching::Events;
use keylane::{Context, Dispatcher, OnExhausted, Retry};
use keylane_inbox::NewMessage;
use keylane_sql::{
    Database, Settings, SourceSettings, SqlInbox, SqlPosition, SqlSource, Tables, sqlx,
};
use keylane_testkit::Lines;
use keylane_testkit::scenario::by_key;
pub(crate) use keylane_testkit::scenario::until_within as until;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};
use testkit_processes::Step;
use testkit_servers::{Dump, MariaDb, Postgres};
use tokio::time::{Instant, sleep};

use crate::support::{Kind, Place};

/// How long the claims of a worker last in these tests.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// What happened, in one order for all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Start,
    /// The handler came to its end: true if it succeeded.
    End(bool),
    /// The handler was dropped before.
    Dropped,
    /// The source knows that the claims of its worker have ended, or is opened.
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) worker: usize,
    pub(crate) key: u64,
    pub(crate) id: u64,
    pub(crate) what: What,
}

impl Entry {
    fn step(&self) -> Option<Step> {
        Some(Step {
            worker: self.worker as u32,
            key: self.key,
            id: self.id,
            what: match self.what {
                What::Start => testkit_processes::What::Start,
                What::End(true) => testkit_processes::What::Done,
                What::End(false) | What::Dropped => testkit_processes::What::Broken,
                What::Lost => return None,
            },
        })
    }
}

/// What the workers of a test have done.
#[derive(Clone, Default)]
pub(crate) struct Log {
    entries: Arc<Mutex<Vec<Entry>>>,
    succeeded: Arc<AtomicUsize>,
}

impl Log {
    pub(crate) fn write(&self, worker: usize, key: u64, id: u64, what: What) {
        let entry = Entry {
            worker,
            key,
            id,
            what,
        };
        self.lock().push(entry);
        if what == What::End(true) {
            self.succeeded.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The position of the next entry.
    pub(crate) fn position(&self) -> usize {
        self.lock().len()
    }

    /// How many handlers have succeeded.
    pub(crate) fn succeeded(&self) -> usize {
        self.succeeded.load(Ordering::Relaxed)
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    /// The messages that were handled at least once.
    pub(crate) fn handled(&self) -> HashSet<u64> {
        let entries = self.lock();
        let ended = entries.iter().filter(|entry| entry.what == What::End(true));
        ended.map(|entry| entry.id).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap()
    }
}

/// The message `id` of a key. The id makes it known when it is sent again.
pub(crate) fn message(key: u64, id: u64) -> NewMessage {
    NewMessage::new(key.to_string(), id.to_be_bytes().to_vec()).id(id.to_string())
}

fn id_of(message: &RawMessage) -> u64 {
    u64::from_be_bytes(message.payload[..8].try_into().unwrap())
}

fn key_of(message: &RawMessage) -> u64 {
    let key = message.key.as_ref().unwrap();
    std::str::from_utf8(key).unwrap().parse().unwrap()
}

/// A worker as a process of its own would be one.
pub(crate) struct Worker {
    pub(crate) inbox: SqlInbox,
    dispatcher: Dispatcher<Bytes, RawMessage, (), BoxError>,
    intake: Intake,
}

/// How a worker works.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) settings: Settings,
    pub(crate) source: SourceSettings,
    /// How long the handler of a message takes.
    pub(crate) takes: fn(u64) -> Duration,
    /// Whether the first attempt at a message fails.
    pub(crate) fails: fn(u64) -> bool,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self {
            settings: Settings::new(),
            source: SourceSettings::new()
                .lease(TTL)
                .poll(Duration::from_millis(250)),
            takes: |_| Duration::ZERO,
            fails: |_| false,
        }
    }
}

impl Worker {
    pub(crate) async fn start(address: &str, number: usize, log: &Log, work: Work) -> Self {
        let database = Database::connect(address).await.unwrap();
        Self::start_in(&database, number, log, work).await
    }

    pub(crate) async fn start_in(
        database: &Database,
        number: usize,
        log: &Log,
        work: Work,
    ) -> Self {
        let opened = SqlInbox::open(database, &Tables::new(), work.settings).await;
        let inbox = opened.unwrap();
        let handler = {
            let log = log.clone();
            move |context: Context<Bytes>, message: RawMessage| {
                let (key, id) = (key_of(&message), id_of(&message));
                let mut attempt = Attempt {
                    log: log.clone(),
                    worker: number,
                    key,
                    id,
                    is_over: false,
                };
                async move {
                    attempt.write(What::Start);
                    sleep((work.takes)(id)).await;
                    let is_ok = context.attempt() > 1 || !(work.fails)(id);
                    attempt.write(What::End(is_ok));
                    if is_ok {
                        Ok(())
                    } else {
                        Err("it fails once".into())
                    }
                }
            }
        };
        let dispatcher = by_key()
            .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(1_000))
            .on_exhausted(OnExhausted::AtSource)
            .spawn(handler)
            .unwrap();
        let source = Watched {
            source: inbox.source_with(work.source),
            log: log.clone(),
            worker: number,
        };
        let settings = IntakeSettings::new()
            .confirm_every(Duration::from_millis(50))
            .revoke_within(Duration::from_millis(100))
            .longest_pause(Duration::from_secs(1));
        let intake = dispatcher.consume_with(source, settings).unwrap();
        Self {
            inbox,
            dispatcher,
            intake,
        }
    }

    pub(crate) fn stats(&self) -> IntakeStats {
        self.intake.stats()
    }

    pub(crate) fn events(&self) -> Events<Bytes> {
        self.dispatcher.events()
    }

    pub(crate) async fn stop(&self) -> IntakeReport {
        let report = self.intake.stop().await;
        let sum = report.acked + report.dead_lettered + report.nacked + report.given_back;
        assert_eq!(sum, report.received, "{report}");
        report
    }
}

/// Writes down how an attempt ends, also if it is dropped.
struct Attempt {
    log: Log,
    worker: usize,
    key: u64,
    id: u64,
    is_over: bool,
}

impl Attempt {
    fn write(&mut self, what: What) {
        self.log.write(self.worker, self.key, self.id, what);
        self.is_over = what != What::Start;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_over {
            self.write(What::Dropped);
        }
    }
}

/// Returns the source with its messages decoded, which come out as they were.
pub(crate) fn decoded(source: SqlSource) -> impl Source<Message = RawMessage> {
    source.decode(|raw| Ok(raw.clone()))
}

/// On one thread, so that all of it is logged to these lines.
pub(crate) fn log_to(lines: &Lines) -> tracing::subscriber::DefaultGuard {
    let subscriber = tracing_subscriber::fmt().with_writer(lines.writer());
    keylane_testkit::set_subscriber(subscriber.finish())
}

/// A source that writes down when the claims of its worker have ended.
struct Watched {
    source: SqlSource,
    log: Log,
    worker: usize,
}

impl Source for Watched {
    type Message = RawMessage;
    type Position = SqlPosition;

    fn features(&self) -> Features {
        self.source.features()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.log.write(self.worker, u64::MAX, 0, What::Lost);
        self.source.open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, SqlPosition>,
    ) -> Result<Received<SqlPosition>, SourceError> {
        let received = self.source.receive(into).await;
        if matches!(received, Ok(Received::Lost(_))) {
            self.log.write(self.worker, u64::MAX, 0, What::Lost);
        }
        received
    }

    async fn settle(&mut self, settled: &[Settlement<SqlPosition>]) -> Result<(), SourceError> {
        self.source.settle(settled).await
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.source.confirm().await
    }

    async fn dead_letter(&mut self, letter: SourceLetter<SqlPosition>) -> Result<(), SourceError> {
        self.source.dead_letter(letter).await
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<SqlPosition>>> {
        self.source.start_guard()
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        self.source.close().await
    }
}

/// What is known about a message that was committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    pub(crate) key: u64,
    pub(crate) sequence: u64,
    /// Where the log was before it was accepted for the first time, and after that was confirmed.
    pub(crate) asked: usize,
    pub(crate) answered: usize,
}

/// All that a judge needs.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) entries: Vec<Entry>,
    pub(crate) committed: BTreeMap<u64, Committed>,
    /// Where the log was when the row of a message was not there any more.
    pub(crate) gone: HashMap<u64, usize>,
}

/// What is wrong, and how often something was handled again.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) lost: Vec<u64>,
    pub(crate) invented: BTreeSet<u64>,
    pub(crate) reordered: Vec<(u64, u64)>,
    /// Sequences that are not in the order of the commits.
    pub(crate) out_of_sequence: Vec<u64>,
    pub(crate) overlapping: Vec<(Entry, Entry)>,
    /// Handled again, and its row was gone.
    pub(crate) risen: Vec<u64>,
    /// Handled again without a reason: the claims of its worker had not ended.
    pub(crate) unexplained: Vec<u64>,
    pub(crate) repeated: usize,
    pub(crate) losses: usize,
}

impl Verdict {
    pub(crate) fn is_good(&self) -> bool {
        self.lost.is_empty()
            && self.invented.is_empty()
            && self.reordered.is_empty()
            && self.out_of_sequence.is_empty()
            && self.overlapping.is_empty()
            && self.risen.is_empty()
            && self.unexplained.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lost, {} invented, {} reordered, {} out of sequence, {} overlapping, {} handled \
             after they were gone, {} handled again without a reason; {} handled again, claims \
             opened or lost {} times",
            self.lost.len(),
            self.invented.len(),
            self.reordered.len(),
            self.out_of_sequence.len(),
            self.overlapping.len(),
            self.risen.len(),
            self.unexplained.len(),
            self.repeated,
            self.losses,
        )
    }
}

impl Story {
    pub(crate) fn judge(&self) -> Verdict {
        let handled = testkit_processes::Story::read(self.entries.iter().map(Entry::step));
        // Of each worker, where the log was when its claims ended.
        let mut losses: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.what == What::Lost {
                losses.entry(entry.worker).or_default().push(at);
            }
        }
        // Whether the claims of an attempt's worker ended before another one began.
        let has_lost = |attempt: &testkit_processes::Attempt, next: &testkit_processes::Attempt| {
            let losses = losses.get(&(attempt.worker as usize));
            let between = attempt.start..next.start;
            losses.is_some_and(|losses| losses.iter().any(|at| between.contains(at)))
        };
        let is_risen = |attempt: &&testkit_processes::Attempt| {
            let gone = self.gone.get(&attempt.id);
            gone.is_some_and(|gone| attempt.start >= *gone)
        };
        let overlapping = handled
            .overlaps()
            .filter(|(one, next)| !has_lost(one, next));
        let unexplained = handled.repeats().filter(|(one, next)| !has_lost(one, next));
        let attempts = handled.attempts().iter();
        let ids = attempts.clone().map(|attempt| attempt.id);
        let sequence = |id: u64| self.committed.get(&id).map(|committed| committed.sequence);
        Verdict {
            lost: handled.lost(self.committed.keys().copied()),
            invented: ids.filter(|id| !self.committed.contains_key(id)).collect(),
            reordered: handled.done_out_of_order(sequence),
            out_of_sequence: self.out_of_sequence(),
            overlapping: overlapping
                .map(|(one, next)| (self.entries[one.start], self.entries[next.start]))
                .collect(),
            risen: attempts
                .filter(is_risen)
                .map(|attempt| attempt.id)
                .collect(),
            unexplained: unexplained.map(|(_, again)| again.id).collect(),
            repeated: handled.repeats().count(),
            losses: losses.values().map(Vec::len).sum(),
        }
    }

    /// Messages that were confirmed before another one of their key was sent, and have a higher
    /// sequence.
    fn out_of_sequence(&self) -> Vec<u64> {
        let mut by_sequence: Vec<_> = self.committed.iter().collect();
        by_sequence.sort_by_key(|(_, committed)| committed.sequence);
        let mut last_asked: HashMap<u64, usize> = HashMap::new();
        let mut wrong = Vec::new();
        for (id, committed) in by_sequence {
            let asked = last_asked.entry(committed.key).or_default();
            if committed.answered < *asked {
                wrong.push(*id);
            }
            *asked = (*asked).max(committed.asked);
        }
        wrong
    }
}

/// A server of its own.
pub(crate) enum Own {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Own {
    pub(crate) async fn start(kind: Kind) -> Self {
        match kind {
            Kind::Postgres => Self::Postgres(Postgres::start().await.unwrap()),
            Kind::MariaDb => Self::MariaDb(MariaDb::start().await.unwrap()),
        }
    }

    pub(crate) async fn place(&self) -> Place {
        let (kind, created) = match self {
            Self::Postgres(server) => (Kind::Postgres, server.create_database().await),
            Self::MariaDb(server) => (Kind::MariaDb, server.create_database().await),
        };
        Place::at(kind, created.unwrap()).await
    }

    pub(crate) async fn stop(&self) {
        let stopped = match self {
            Self::Postgres(server) => server.stop().await,
            Self::MariaDb(server) => server.stop().await,
        };
        stopped.unwrap();
    }

    /// Writes down what is in the database of a place.
    pub(crate) async fn dump(&self, place: &Place) -> Dump {
        let (_, name) = place.address.rsplit_once('/').unwrap();
        let dumped = match self {
            Self::Postgres(server) => server.dump(name).await,
            Self::MariaDb(server) => server.dump(name).await,
        };
        dumped.unwrap()
    }

    /// Puts it into its place again.
    pub(crate) async fn bring_back(&self, place: &Place, dump: &Dump) {
        let (_, name) = place.address.rsplit_once('/').unwrap();
        let read = match self {
            Self::Postgres(server) => server.bring_back(name, dump).await,
            Self::MariaDb(server) => server.bring_back(name, dump).await,
        };
        read.unwrap();
    }

    /// In order, as an update of the server does it.
    pub(crate) async fn restart(&self) {
        self.stop().await;
        let started = match self {
            Self::Postgres(server) => server.start_again().await,
            Self::MariaDb(server) => server.start_again().await,
        };
        started.unwrap();
    }
}

/// What is locked until this ends.
pub(crate) enum Lock {
    Postgres(PgConnection),
    MariaDb(MySqlConnection),
}

impl Lock {
    /// A table.
    pub(crate) async fn of(place: &Place, table: &str) -> Self {
        let lock = match place.kind {
            Kind::Postgres => {
                format!("begin; lock table keylane_{table} in access exclusive mode")
            }
            Kind::MariaDb => format!("lock tables keylane_{table} write"),
        };
        Self::by(place, lock).await
    }

    /// What these statements lock.
    pub(crate) async fn by(place: &Place, statements: String) -> Self {
        let lock = sqlx::raw_sql(AssertSqlSafe(statements));
        match place.kind {
            Kind::Postgres => {
                let mut connection = PgConnection::connect(&place.address).await.unwrap();
                lock.execute(&mut connection).await.unwrap();
                Self::Postgres(connection)
            }
            Kind::MariaDb => {
                let mut connection = MySqlConnection::connect(&place.address).await.unwrap();
                lock.execute(&mut connection).await.unwrap();
                Self::MariaDb(connection)
            }
        }
    }

    pub(crate) async fn end(self) {
        let ended = match self {
            Self::Postgres(connection) => connection.close().await,
            Self::MariaDb(connection) => connection.close().await,
        };
        ended.unwrap();
    }
}

impl Place {
    /// The first columns of a query, as bytes.
    pub(crate) async fn bytes(&self, query: &str) -> Result<Vec<Vec<u8>>, sqlx::Error> {
        let query = AssertSqlSafe(query.to_owned());
        match self.kind {
            Kind::Postgres => {
                let mut connection = PgConnection::connect(&self.address).await?;
                let rows = sqlx::query(query).fetch_all(&mut connection).await?;
                Ok(rows.iter().map(|row| row.get(0)).collect())
            }
            Kind::MariaDb => {
                let mut connection = MySqlConnection::connect(&self.address).await?;
                let rows = sqlx::query(query).fetch_all(&mut connection).await?;
                Ok(rows.iter().map(|row| row.get(0)).collect())
            }
        }
    }

    /// Waits until nothing is left of what was accepted.
    pub(crate) async fn is_empty_within(&self, limit: Duration) {
        let until = Instant::now() + limit;
        loop {
            let mut left = Vec::new();
            for table in ["messages", "lanes", "keys", "letters"] {
                let count = format!("select count(*) from keylane_{table}");
                left.push((table, self.number(&count).await));
            }
            if left.iter().all(|(_, count)| *count == 0) {
                return;
            }
            assert!(Instant::now() < until, "something is left: {left:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until no connection is idle in a transaction.
    pub(crate) async fn no_open_transactions(&self) {
        let until = Instant::now() + Duration::from_secs(120);
        while self.open_transactions().await > 0 {
            assert!(Instant::now() < until, "a connection is in a transaction");
            sleep(Duration::from_millis(20)).await;
        }
    }
}
