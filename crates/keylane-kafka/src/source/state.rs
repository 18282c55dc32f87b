//! The state of the source.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use keylane_connector::Repeats;
use keylane_source::{Generation, RawMessage, SourceError};
use rdkafka::error::KafkaResult;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::anew::Commits;
use super::failures::Failures;
use super::in_log::LetterRead;
use super::inspection::Inspection;
use super::intake::PartitionIntake;
use super::letter_topic::LetterTopic;
use super::probe::Probed;
use super::starting::Starting;
use super::unavailable::Unavailable;
use crate::config::Config;
use crate::control::Control;
use crate::core::{Assignment, KafkaPosition};
use crate::link::{Answer, Consumer, Job, Prefetcher, Reader, Release, Session, TopicIds};
use crate::metrics::PartitionFigures;
use crate::producer::Delivery;
use crate::record::Maker;

/// Kafka topics as a source: one member of a group.
///
/// It hands over [`RawMessage`]s; [`decode`](keylane::source::Source::decode) makes your messages
/// of them. A raw message contains the key, the payload, the headers and the time of a record, and
/// its [`Place`](crate::Place). (A header whose name is not UTF-8 has the name `\u{fffd}` and no
/// value.) A source that is built with [`build_with`](crate::KafkaSourceBuilder::build_with) makes your
/// messages of the records themselves, without a copy.
///
/// # What it does
///
/// - A record is committed when all records before it in its partition are settled. Records that
///   are settled beyond that are in the [metadata](crate::metadata) of the commit, and the next
///   owner of the partition does not handle them again.
/// - At a rebalance the source starts no more records of a revoked partition. Running ones may
///   finish for [`revoke_within`](keylane::consume::IntakeSettings::revoke_within). Then the source commits
///   the offset and releases the partition. Other partitions go on meanwhile.
/// - If the lane of a key is full, only the offsets of its further records are kept. They are read
///   again from the log when the lane has room: see
///   [`deferred`](keylane::consume::IntakeSettings::deferred). So a slow key does not stop the others.
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
    pub(super) config: Arc<Config>,
    pub(super) assignment: Assignment<PartitionIntake<M>>,
    /// Partitions that are ours and not read yet.
    pub(super) starting: Starting,
    pub(super) failures: Failures,
    pub(super) unavailable: Unavailable,
    pub(super) letter_topic: LetterTopic,
    pub(super) inspection: Inspection,
    /// The partitions that begin at the end of their log: those that existed when the group began.
    /// Determined once in the life of the source; later partitions begin at their first record.
    pub(super) at_end: Option<Arc<HashSet<(String, i32)>>>,
    /// The first partition of the next call.
    pub(super) first: usize,
    pub(super) maker: Maker<M>,
    /// Notified when there is something new.
    pub(super) wake: Arc<Notify>,
    /// Reads the partitions while the source is open.
    pub(super) prefetcher: Option<Prefetcher<M>>,
    /// The rounds of the prefetcher when the source was last well.
    pub(super) rounds_seen: Option<u64>,
    /// The partitions that the group wants back and waits for.
    pub(super) revoked: Vec<(Vec<Generation>, Release)>,
    /// The lost generations that are not reported yet.
    pub(super) lost: Vec<Generation>,
    /// When to read partitions again from their frontiers, if there are any.
    pub(super) rewind_at: Option<Instant>,
    /// The commit in progress. There is one at a time.
    pub(super) committing: Option<Job<Answer>>,
    /// The earliest time of the next commit.
    pub(super) commit_at: Instant,
    pub(super) commits: Commits,
    /// The ids of the topics. They outlive a session: a topic may be created again between two of
    /// them.
    pub(super) topics: Arc<Mutex<TopicIds>>,
    /// The limit of the metadata of a commit. It is less than the setting if the broker accepts
    /// less.
    pub(super) metadata_chars: usize,
    pub(super) probing: Option<Job<KafkaResult<Probed>>>,
    /// The next partition whose leader is asked for an answer.
    pub(super) probed: usize,
    pub(super) reader: Option<Reader>,
    /// Another member of the group has taken the name of this one. It joins again when the name is
    /// free. It outlives a session.
    pub(super) is_name_taken: bool,
    /// Letters on their way, which are offered again.
    pub(super) letters: HashMap<KafkaPosition, Delivery>,
    /// The read of the record of one.
    pub(super) letter_read: Option<LetterRead>,
    pub(super) control: Control,
    pub(super) figures: PartitionFigures,
    /// What was logged, and is true still.
    pub(super) said: Repeats<&'static str>,
    pub(super) published_at: Instant,
    /// The count of changes at the last look at the paused partitions.
    pub(super) pauses_seen: u64,
    /// Dropped after the fields that use it: the member leaves the group when the last handle of
    /// its consumer is dropped.
    pub(super) session: Option<Session>,
}

impl<M> KafkaSource<M> {
    pub(crate) fn new(config: Arc<Config>, maker: Maker<M>) -> Self {
        let (now, wake) = (Instant::now(), Arc::new(Notify::new()));
        Self {
            starting: Starting::new(&wake),
            failures: Failures::default(),
            unavailable: Unavailable::default(),
            letter_topic: LetterTopic::default(),
            inspection: Inspection::default(),
            at_end: None,
            assignment: Assignment::new(config.settings.limits, config.settings.commit_limits()),
            metadata_chars: config.settings.metadata_chars,
            figures: PartitionFigures::new(config.name()),
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
            is_name_taken: false,
            letters: HashMap::new(),
            letter_read: None,
            control: Control::default(),
            said: Repeats::default(),
            published_at: now,
            pauses_seen: 0,
            session: None,
        }
    }

    /// Returns a handle to watch and pause the source. Get it before the source is consumed.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    pub(super) fn session(&mut self) -> Result<&mut Session, SourceError> {
        self.session.as_mut().ok_or_else(not_open)
    }

    pub(super) fn consumer(&self) -> Result<Arc<Consumer>, SourceError> {
        let session = self.session.as_ref().ok_or_else(not_open)?;
        Ok(Arc::clone(&session.consumer))
    }

    /// Releases everything. The records that were handed over are not ours any more.
    pub(super) fn abandon(&mut self) -> Option<Session> {
        self.assignment.clear();
        // Answers about the earlier session arrive nowhere.
        self.starting = Starting::new(&self.wake);
        // They are detected again.
        self.failures = Failures::default();
        self.unavailable = Unavailable::default();
        self.letter_topic = LetterTopic::default();
        self.revoked.clear();
        self.lost.clear();
        self.rewind_at = None;
        self.letters.clear();
        self.letter_read = None;
        // They end by themselves, and their answers are about partitions that are gone.
        self.committing = None;
        self.inspection.asked = None;
        self.probing = None;
        self.prefetcher = None;
        self.rounds_seen = None;
        self.session.take()
    }
}

impl<M> std::fmt::Debug for KafkaSource<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSource")
            .field("settings", &self.config.settings)
            .finish_non_exhaustive()
    }
}

pub(super) fn not_open() -> SourceError {
    SourceError::failed("the source is not open")
}
