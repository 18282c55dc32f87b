//! The source: partitions come and go, records are handed over, what settles is committed.
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
//! A call of the source may be dropped at each of its awaits. What waits for a thread is kept in
//! the source, and looked at by the next call.

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

/// How long the brokers are given to answer at all when the source is opened.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How long a session of before is waited for.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// The topics of a Kafka cluster as a source, as one member of a group.
///
/// It hands over [`RawMessage`]s; [`decode`](Source::decode) makes your messages of them. The key,
/// the payload, the headers and the time of a record are in it, and its [`Place`](crate::Place). (A
/// header whose name is no UTF-8 comes as `\u{fffd}`, and without its value.) A source that is
/// built with [`build_with`](Builder::build_with) makes your messages of the records themselves,
/// without a copy.
///
/// # What it does
///
/// - A record is committed when everything before it in its partition is settled. What is settled
///   beyond that is in the [metadata](crate::metadata) of the commit, and is not handled again by
///   the next owner of the partition.
/// - At a rebalance nothing of a partition that goes is started any more, what is in flight may
///   finish for [`revoke_within`](keylane::IntakeSettings::revoke_within), its offset is committed,
///   and then it goes. The partitions that stay go on meanwhile.
/// - Beyond the capacity of its lane only the offsets of a key's records are kept. They are read
///   again from the log when the lane has room: see
///   [`deferred`](keylane::IntakeSettings::deferred). So a slow key does not stop the others.
/// - Records that the log does not have any more, because of compaction, or as marks and aborted
///   records of transactions, hold up nothing.
/// - A topic that is deleted and made anew under its name begins at its first record, and the
///   source is opened again for that. Brokers tell the two topics apart from Kafka 3.1 on.
/// - A partition of which something was given back, without the end of the source, is read again
///   from its frontier.
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
    /// What is ours and not read yet.
    starting: Starting,
    failures: Failures,
    refused: Refused,
    /// The partitions that begin at the end of their log: those that were there when the group
    /// began. Found out once in the life of the source; what comes later begins at its first
    /// record.
    at_end: Option<Arc<HashSet<(String, i32)>>>,
    /// The partition that is looked at first in the next call.
    first: usize,
    maker: Maker<M>,
    /// Somewhere there is something new.
    wake: Arc<Notify>,
    /// Reads the partitions, as long as the source is open.
    prefetcher: Option<Prefetcher<M>>,
    /// How often it had looked at all partitions when the source was well.
    rounds_seen: Option<u64>,
    /// What the group has asked for, and waits for.
    revoked: Vec<(Vec<Generation>, Release)>,
    /// What is lost, and not told yet.
    lost: Vec<Generation>,
    /// When partitions are to be read again from their frontiers, if any are.
    rewind_at: Option<Instant>,
    /// There is one commit at a time.
    committing: Option<Job<Answer>>,
    /// When the next commit may be.
    commit_at: Instant,
    commits: Commits,
    /// The ids of the topics, which outlive a session: a topic may be made anew between two of
    /// them.
    topics: Arc<Mutex<TopicIds>>,
    /// How long the metadata of a commit may be. Less than what is set, if the broker takes less.
    metadata_chars: usize,
    probing: Option<Job<KafkaResult<Probed>>>,
    /// Which partition is asked next whether its broker answers.
    probed: usize,
    reader: Option<Reader>,
    /// Letters on their way, which are offered again.
    letters: HashMap<Position, Delivery>,
    control: Control,
    published_at: Instant,
    /// The last so often was looked at what is paused.
    pauses_seen: u64,
    /// After what belongs to it: it leaves the group when nothing has its consumer any more.
    session: Option<Session>,
}

impl KafkaSource {
    /// Begins to build a source: where the brokers are, as `host:port`, several with commas between
    /// them, and the group whose members share the partitions.
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

    /// The view into it from outside, to be taken before it is consumed.
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

    /// Lets go of everything. What was handed over is not ours any more.
    fn abandon(&mut self) -> Option<Session> {
        self.assignment.clear();
        // What is answered about the session of before is heard by no one.
        self.starting = Starting::new(&self.wake);
        // They are found anew.
        self.failures = Failures::default();
        self.refused = Refused::default();
        self.revoked.clear();
        self.lost.clear();
        self.rewind_at = None;
        self.letters.clear();
        // They end by themselves, and their answers are about what is gone.
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
            // Otherwise the group has two of us for a while, and our partitions wait for one of
            // them.
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
            // Before it joins: another member that joins with it has committed nothing by then.
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
        // What settled since the last confirmation.
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
