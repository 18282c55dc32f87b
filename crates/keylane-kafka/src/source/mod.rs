//! The source: gets and releases partitions, hands over records, commits settled ones.
//!
//! ```text
//!  thread of the session          task of the driver                    threads that may block
//!  ───────────────────── News ──► assignment: partition, frontier
//!  assigned, revoked, lost
//!  thread that reads ahead
//!  ─────────────── messages ────► receive: partitions ──► deliveries
//!                                 settle:  outcomes ──► frontiers ─────► commit
//!         ◄── release dropped ─── release: committed, and gone           reread, probe
//! ```
//!
//! A call of the source may be dropped at each of its awaits. The source keeps the work of other
//! threads, and its next call looks at it.

mod anew;
mod failures;
mod intake;
mod letters;
mod offsets;
mod receiving;
mod refused;
mod rereading;
mod starting;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anew::Commits;
use failures::Failures;
use intake::PartitionIntake;
use keylane_source::{
    Deliveries, Features, Generation, RawMessage, Received, Settlement, Source, SourceError,
    SourceLetter,
};
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaResult;
use receiving::Probed;
use refused::Refused;
use starting::Starting;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::assignment::{Assignment, Position};
use crate::client::{self, Answer, Consumer, Job, Prefetcher, Reader, Release, Session, TopicIds};
use crate::config::{Builder, Config, StartAt};
use crate::control::Control;
use crate::producer::Delivery;
use crate::record::Maker;

/// How long the brokers have to answer when the source is opened.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How long the source waits for an earlier session to end.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// Kafka topics as a source: one member of a group.
///
/// It hands over [`RawMessage`]s; [`decode`](Source::decode) makes your messages of them. A raw
/// message contains the key, the payload, the headers and the time of a record, and its
/// [`Place`](crate::Place). (A header whose name is not UTF-8 has the name `\u{fffd}` and no
/// value.) A source that is built with [`build_with`](Builder::build_with) makes your messages of
/// the records themselves, without a copy.
///
/// # What it does
///
/// - A record is committed when all records before it in its partition are settled. Records that
///   are settled beyond that are in the [metadata](crate::metadata) of the commit, and the next
///   owner of the partition does not handle them again.
/// - At a rebalance the source starts no more records of a revoked partition. Running ones may
///   finish for [`revoke_within`](keylane::IntakeSettings::revoke_within). Then the source commits
///   the offset and releases the partition. Other partitions go on meanwhile.
/// - If the lane of a key is full, only the offsets of its further records are kept. They are read
///   again from the log when the lane has room: see
///   [`deferred`](keylane::IntakeSettings::deferred). So a slow key does not stop the others.
/// - Offsets without a record hold up nothing: compacted records, markers of transactions and
///   aborted records.
/// - A topic that is deleted and created again under its name begins at its first record, and the
///   source is opened again for that. Brokers tell the two topics apart from Kafka 3.1 on.
/// - If a record is returned while the source continues, its partition is read again from its
///   frontier.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use keylane::error::BoxError;
/// use keylane::source::{RawMessage, Source};
/// use keylane::{Dispatcher, OnExhausted, Retry};
/// use keylane_kafka::KafkaSource;
///
/// # async fn bill(raw: RawMessage) -> Result<(), std::io::Error> { Ok(()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), BoxError> {
/// let orders = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
///     .retry(Retry::exponential(Duration::from_millis(50)).max_attempts(5))
///     .on_exhausted(OnExhausted::Halt)
///     .spawn(bill)?;
/// let source = KafkaSource::builder("localhost:9092", "billing").topic("orders").build()?;
/// let intake = orders.consume(source)?;
/// tokio::signal::ctrl_c().await?;
/// println!("{}", intake.stop().await);
/// # Ok(())
/// # }
/// ```
pub struct KafkaSource<M = RawMessage> {
    config: Arc<Config>,
    assignment: Assignment<PartitionIntake<M>>,
    /// Partitions that are ours and not read yet.
    starting: Starting,
    failures: Failures,
    refused: Refused,
    /// The partitions that begin at the end of their log: those that existed when the group began.
    /// Determined once in the life of the source; later partitions begin at their first record.
    at_end: Option<Arc<HashSet<(String, i32)>>>,
    /// The first partition of the next call.
    first: usize,
    maker: Maker<M>,
    /// Notified when there is something new.
    wake: Arc<Notify>,
    /// Reads the partitions while the source is open.
    prefetcher: Option<Prefetcher<M>>,
    /// The rounds of the prefetcher when the source was last well.
    rounds_seen: Option<u64>,
    /// The partitions that the group wants back and waits for.
    revoked: Vec<(Vec<Generation>, Release)>,
    /// The lost generations that are not reported yet.
    lost: Vec<Generation>,
    /// When to read partitions again from their frontiers, if there are any.
    rewind_at: Option<Instant>,
    /// The commit in progress. There is one at a time.
    committing: Option<Job<Answer>>,
    /// The earliest time of the next commit.
    commit_at: Instant,
    commits: Commits,
    /// The ids of the topics. They outlive a session: a topic may be created again between two of
    /// them.
    topics: Arc<Mutex<TopicIds>>,
    /// The limit of the metadata of a commit. It is less than the setting if the broker accepts
    /// less.
    metadata_chars: usize,
    probing: Option<Job<KafkaResult<Probed>>>,
    /// The next partition whose leader is asked for an answer.
    probed: usize,
    reader: Option<Reader>,
    /// Letters on their way, which are offered again.
    letters: HashMap<Position, Delivery>,
    control: Control,
    published_at: Instant,
    /// The count of changes at the last look at the paused partitions.
    pauses_seen: u64,
    /// Dropped after the fields that use it: the member leaves the group when the last handle of
    /// its consumer is dropped.
    session: Option<Session>,
}

impl KafkaSource {
    /// Begins to build a source with these brokers (each as `host:port`, several with commas
    /// between them) and this group, whose members share the partitions.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane_kafka::{KafkaSource, StartAt};
    ///
    /// # fn main() -> Result<(), keylane_kafka::ConfigError> {
    /// let source = KafkaSource::builder("localhost:9092", "billing")
    ///     .topic("orders")
    ///     .pattern("refunds-.*")
    ///     .start_at(StartAt::Latest)
    ///     .property("fetch.wait.max.ms", "100")
    ///     .build()?;
    /// # let _ = source;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(brokers: impl Into<String>, group: impl Into<String>) -> Builder {
        Builder::new(brokers, group)
    }
}

impl<M> KafkaSource<M> {
    pub(crate) fn new(config: Arc<Config>, maker: Maker<M>) -> Self {
        let (now, wake) = (Instant::now(), Arc::new(Notify::new()));
        Self {
            starting: Starting::new(&wake),
            failures: Failures::default(),
            refused: Refused::default(),
            at_end: None,
            assignment: Assignment::new(config.settings.limits),
            metadata_chars: config.settings.metadata_chars,
            config,
            first: 0,
            maker,
            wake,
            prefetcher: None,
            rounds_seen: None,
            revoked: Vec::new(),
            lost: Vec::new(),
            rewind_at: None,
            committing: None,
            commit_at: now,
            commits: Commits::default(),
            topics: Arc::default(),
            probing: None,
            probed: 0,
            reader: None,
            letters: HashMap::new(),
            control: Control::default(),
            published_at: now,
            pauses_seen: 0,
            session: None,
        }
    }

    /// Returns a handle to watch and pause the source. Get it before the source is consumed.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    fn session(&mut self) -> Result<&mut Session, SourceError> {
        self.session.as_mut().ok_or_else(not_open)
    }

    fn consumer(&self) -> Result<Arc<Consumer>, SourceError> {
        let session = self.session.as_ref().ok_or_else(not_open)?;
        Ok(Arc::clone(&session.consumer))
    }

    /// Releases everything. The records that were handed over are not ours any more.
    fn abandon(&mut self) -> Option<Session> {
        self.assignment.clear();
        // Answers about the earlier session arrive nowhere.
        self.starting = Starting::new(&self.wake);
        // They are detected again.
        self.failures = Failures::default();
        self.refused = Refused::default();
        self.revoked.clear();
        self.lost.clear();
        self.rewind_at = None;
        self.letters.clear();
        // They end by themselves, and their answers are about partitions that are gone.
        self.committing = None;
        self.probing = None;
        self.prefetcher = None;
        self.rounds_seen = None;
        self.session.take()
    }
}

impl<M: Send + Sync + 'static> Source for KafkaSource<M> {
    type Message = M;
    type Position = Position;

    fn name(&self) -> String {
        self.config.name()
    }

    fn features(&self) -> Features {
        let features = Features::new().survives_restart().random_access();
        match &self.config.letters {
            Some(_) => features.dead_letters(),
            None => features,
        }
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        if let Some(session) = self.abandon() {
            // Otherwise the group has two members of this process for a while, and our partitions
            // wait for one of them.
            let _ = timeout(LEAVE_WITHIN, session.close()).await;
        }
        let (maker, wake) = (self.maker.clone(), Arc::clone(&self.wake));
        let prefetcher = Prefetcher::start(maker, wake).map_err(SourceError::failed)?;
        let session = Session::open(&self.config, &self.topics, &self.wake, prefetcher.thread());
        let session = session.map_err(SourceError::failed)?;
        self.prefetcher = Some(prefetcher);
        let consumer = Arc::clone(&session.consumer);
        self.session = Some(session);
        let asked = blocking(move || consumer.fetch_metadata(None, ANSWER_WITHIN).map(drop));
        if let Err(error) = asked.await? {
            let brokers = self.config.brokers();
            let what = format!("no broker answers at {brokers}: {error}");
            return Err(SourceError::failed(what));
        }
        if self.config.settings.start_at == StartAt::Latest && self.at_end.is_none() {
            // Before it joins: a member that joins at the same time has committed nothing by then.
            let (consumer, config) = (self.consumer()?, Arc::clone(&self.config));
            let asked = blocking(move || client::at_first_start(&consumer, config.names()));
            let at_end = asked.await?.map_err(SourceError::failed)?;
            self.at_end = Some(Arc::new(at_end));
        }
        let config = Arc::clone(&self.config);
        let joined = self.session()?.join(&config);
        joined.map_err(SourceError::failed)?;
        if let Some(letters) = self.config.letters.clone() {
            let topic = letters.name().to_owned();
            if let Err(error) = blocking(move || letters.look(ANSWER_WITHIN)).await? {
                tracing::warn!(
                    target: "keylane",
                    topic,
                    %error,
                    "dead letters cannot be written now, and their keys will wait: does their topic exist?"
                );
            }
        }
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<M, Position>,
    ) -> Result<Received<Position>, SourceError> {
        self.next(into).await
    }

    async fn settle(&mut self, settled: &[Settlement<Position>]) -> Result<(), SourceError> {
        self.assignment.settle(settled);
        if settled.iter().any(|one| !one.outcome.is_ack()) {
            self.rewind_soon();
        }
        self.commit_if_due()
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.commit_all().await
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        // Commits the records that settled after the last confirmation.
        self.commit_all().await?;
        self.let_go(generations).await
    }

    async fn reread(
        &mut self,
        positions: &[Position],
        into: &mut Deliveries<M, Position>,
    ) -> Result<(), SourceError> {
        self.read_again(positions, into).await
    }

    async fn dead_letter(&mut self, letter: SourceLetter<Position>) -> Result<(), SourceError> {
        self.keep_letter(letter).await
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        if let Some(session) = self.abandon() {
            session.close().await;
        }
        self.control.publish(Vec::new());
        Ok(())
    }
}

impl<M> std::fmt::Debug for KafkaSource<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSource")
            .field("settings", &self.config.settings)
            .finish_non_exhaustive()
    }
}

fn not_open() -> SourceError {
    SourceError::failed("the source is not open")
}

fn job<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Result<Job<T>, SourceError> {
    client::job(run).map_err(SourceError::failed)
}

async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SourceError> {
    client::blocking(run).await.map_err(SourceError::failed)
}
