//! The callbacks of the client: the partitions that the group gives and takes.
//!
//! A rebalance is a call in the thread of the session. The group waits until it returns. So the
//! call reports a revoked partition to the source, and returns when the source has released it:
//! then nothing of it runs, and its frontier is committed.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use keylane_source::frontier::Beyond;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::statistics::{Partition, Statistics, Topic};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};
use rdkafka::types::RDKafkaRespErr;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};

use super::closable::ClosableQueue;
use super::codes::is_about_topic;
use super::offset::offset;
use super::topics::{MadeAnew, TopicIds};
use crate::config::Config;
use crate::core::Committed;
use crate::error::KafkaSourceError;
use crate::explain::Heard;
use crate::log::log;
use crate::metadata;
use keylane_connector::lock;

pub(crate) type Consumer = BaseConsumer<Context>;
pub(super) type Queue = PartitionQueue<Context>;

/// The timeout of the request for the committed offsets. The group waits meanwhile.
const ASKED_FOR: Duration = Duration::from_secs(5);

/// How often it checks whether a revoked partition is lost already.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often it checks whether a queue in use is shut.
const SHUT_EVERY: Duration = Duration::from_millis(1);

/// The result of waiting for a release that is not dropped yet.
const STILL_HELD: Result<(), RecvTimeoutError> = Err(RecvTimeoutError::Timeout);

/// A message of the session to the source.
pub(crate) enum News {
    /// These partitions are ours.
    Assigned(Vec<Found>),
    /// The group wants these partitions back. It has them when the release is dropped.
    Revoked(Vec<(String, i32)>, Release),
    /// These partitions are gone: another member may own them already.
    Lost(Vec<(String, i32)>),
    /// A topic was deleted and created again under its name. The client may go on in the new log at
    /// its position in the old one.
    MadeAnew { topic: String, goes_on: bool },
    /// A topic does not exist, or may not be read. The client does not say which.
    Unavailable,
    /// Another member of the group has the name of this one.
    NameTaken,
    /// No broker can be reached, because of TLS, or one refuses the user.
    Refused(KafkaSourceError),
    /// A failure from which the client does not recover by itself.
    Failed(String),
}

/// A partition that is ours.
pub(crate) struct Found {
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
    pub(crate) committed: Committed,
    /// The offset from which the client reads it. `None`: from the first record of its log.
    pub(crate) read_from: Option<u64>,
    pub(crate) queue: Arc<ClosableQueue<Context>>,
    pub(crate) ownership: Ownership,
}

/// Whether a partition is still ours, from one assignment to the end of it.
#[derive(Clone, Debug)]
pub(crate) struct Ownership(Arc<AtomicBool>);

impl Ownership {
    fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Changes only while no commit is in progress: see [`Context::commit`].
    pub(crate) fn lasts(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The knowledge of the client about a partition.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// One past the last record that a consumer may see.
    pub(crate) log_end: Option<u64>,
    /// False: the brokers say that it has no leader.
    pub(crate) has_leader: bool,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            log_end: None,
            has_leader: true,
        }
    }
}

/// The state of the client on its way into the group.
#[derive(Clone, Copy, Default)]
pub(super) struct Joining {
    /// How often the client has reported it.
    pub(super) seen: u64,
    pub(super) is_under_way: bool,
}

/// The states of the client in which it waits for an answer of the group.
const JOINING: [&str; 3] = ["wait-join", "wait-metadata", "wait-sync"];

/// The partitions that are ours, by topic and number.
type Owned = HashMap<(String, i32), Ownership>;

/// The queues of partitions, by topic and number.
type Taps = HashMap<(String, i32), Weak<ClosableQueue<Context>>>;

/// Gives partitions back to the group when it is dropped.
pub(crate) struct Release {
    _held: mpsc::Sender<()>,
}

pub(crate) struct Context {
    consumer: OnceLock<Weak<Consumer>>,
    news: UnboundedSender<News>,
    /// The same as [`News::Refused`], while the source waits for a first answer.
    refused: watch::Sender<Option<KafkaSourceError>>,
    /// Notified when there is news.
    wake: Arc<Notify>,
    /// Unparked when a partition has records.
    reader: Thread,
    /// The session ends: no call waits any longer.
    ends: Arc<AtomicBool>,
    config: Arc<Config>,
    /// Locked while a commit is in progress. The client commits as the member that it is when it
    /// sends the request. If it left the group and joined again in between, the broker would accept
    /// the commit for partitions that other members own by now.
    owned: Mutex<Owned>,
    /// What the client has said of TLS or the user at a broker.
    heard: Heard,
    /// The knowledge of the client about the partitions, by topic and number.
    known: Mutex<HashMap<String, HashMap<i32, Known>>>,
    /// The group has answered the last join.
    has_joined: AtomicBool,
    joining: Mutex<Joining>,
    /// The queues of the assigned partitions.
    taps: Mutex<Taps>,
    /// No broker could be reached at some time.
    are_all_down: AtomicBool,
    topics: Arc<Mutex<TopicIds>>,
}

impl Context {
    pub(super) fn new(
        (news, refused): (
            UnboundedSender<News>,
            watch::Sender<Option<KafkaSourceError>>,
        ),
        wake: Arc<Notify>,
        reader: Thread,
        ends: Arc<AtomicBool>,
        config: &Arc<Config>,
        topics: &Arc<Mutex<TopicIds>>,
    ) -> Self {
        Self {
            consumer: OnceLock::new(),
            news,
            refused,
            wake,
            reader,
            ends,
            config: Arc::clone(config),
            owned: Mutex::default(),
            heard: Heard::default(),
            known: Mutex::default(),
            has_joined: AtomicBool::new(false),
            joining: Mutex::default(),
            taps: Mutex::default(),
            are_all_down: AtomicBool::new(false),
            topics: Arc::clone(topics),
        }
    }

    /// Sets the consumer that this context belongs to. Its queues belong to it as a whole.
    pub(super) fn set_consumer(&self, consumer: &Arc<Consumer>) {
        // Set once, by the session.
        let _ = self.consumer.set(Arc::downgrade(consumer));
    }

    /// Whether the client has said that it reaches no broker.
    pub(super) fn are_all_down(&self) -> bool {
        self.are_all_down.load(Ordering::Acquire)
    }

    /// Returns the error for a user that may not be a member of the group.
    pub(super) fn not_authorized(&self, error: &KafkaError) -> KafkaSourceError {
        let config = &self.config;
        config.not_authorized(&config.read(), error.to_string())
    }

    pub(super) fn tell(&self, news: News) {
        // Without a source the session ends.
        let _ = self.news.send(news);
        self.wake.notify_one();
    }

    /// Tells the source why no broker can be reached, if the client has said a moment ago what it
    /// is: TLS, or the user. Blocks the thread for as long as a handshake takes.
    fn explain(&self) {
        if let Some(error) = self.heard.take(|name| self.config.property(name)) {
            self.refused.send_replace(Some(error.clone()));
            self.tell(News::Refused(error));
        }
    }

    /// Returns the client's knowledge of a partition, from its statistics of each second.
    pub(crate) fn known(&self, topic: &str, number: i32) -> Known {
        let known = lock(&self.known);
        let known = known.get(topic).and_then(|topic| topic.get(&number));
        known.copied().unwrap_or_default()
    }

    /// Whether the group has answered the last join, and has taken no partition since.
    pub(super) fn has_joined(&self) -> bool {
        self.has_joined.load(Ordering::Relaxed)
    }

    pub(super) fn joining(&self) -> Joining {
        *lock(&self.joining)
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Returns those of these partitions that the source reads.
    fn taken(&self, partitions: &TopicPartitionList) -> TopicPartitionList {
        let mut taken = TopicPartitionList::with_capacity(partitions.count());
        for one in partitions.elements() {
            if self.config.takes(one.topic()) {
                taken.add_partition(one.topic(), one.partition());
            }
        }
        taken
    }

    fn assign(&self, consumer: &Consumer, partitions: &TopicPartitionList) -> KafkaResult<()> {
        let mut assigned = TopicPartitionList::with_capacity(partitions.count());
        let mut found = Vec::new();
        for (topic, number, committed) in ask_for_committed(consumer, partitions) {
            // Before the assignment: its first record arrives here already.
            let Some(queue) = self.queue(&topic, number) else {
                continue;
            };
            let read_from = match &committed {
                Committed::At(at, _) => Some(*at),
                Committed::Unknown | Committed::Nothing => None,
            };
            let from = read_from.map_or(Offset::Beginning, offset);
            assigned.add_partition_offset(&topic, number, from)?;
            let ownership = Ownership::new();
            found.push(Found {
                topic: topic.as_str().into(),
                number,
                committed,
                read_from,
                queue,
                ownership: ownership.clone(),
            });
            let mut owned = lock(&self.owned);
            let before = owned.insert((topic, number), ownership);
            // It was lost without notice. This happens before a commit that waits for the lock.
            before.iter().for_each(Ownership::end);
        }
        match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(&assigned)?,
            _ => consumer.assign(&assigned)?,
        }
        if found.len() < partitions.count() && !self.ends() {
            let message = "the client has no queue for a partition".to_owned();
            return Err(KafkaError::Subscription(message));
        }
        self.tell(News::Assigned(found));
        Ok(())
    }

    fn queue(&self, topic: &str, number: i32) -> Option<Arc<ClosableQueue<Context>>> {
        // The queue of an assignment that has ended without notice.
        self.shut([(topic.to_owned(), number)]);
        let consumer = self.consumer.get()?.upgrade()?;
        let mut queue = consumer.split_partition_queue(topic, number)?;
        let reader = self.reader.clone();
        queue.set_nonempty_callback(move || reader.unpark());
        let tap = Arc::new(ClosableQueue::new(queue));
        let place = (topic.to_owned(), number);
        lock(&self.taps).insert(place, Arc::downgrade(&tap));
        Some(tap)
    }

    /// Shuts the queues of these partitions, and returns when no thread reads them. It waits for a
    /// function of the user that makes a message. Records read later belong to the next assignment.
    fn shut(&self, places: impl IntoIterator<Item = (String, i32)>) {
        for place in places {
            let tap = lock(&self.taps).remove(&place);
            let Some(tap) = tap.and_then(|tap| tap.upgrade()) else {
                continue;
            };
            // A session that ends hands over nothing more.
            while !tap.shut() && !self.ends() {
                thread::sleep(SHUT_EVERY);
            }
        }
    }

    /// Runs a commit while no partition comes or goes.
    pub(super) fn commit<T>(&self, commit: impl FnOnce() -> T) -> T {
        let _held = lock(&self.owned);
        commit()
    }

    /// Marks these partitions as lost. Waits for a commit that is in progress.
    fn disown(&self, places: impl Iterator<Item = (String, i32)>) {
        let mut owned = lock(&self.owned);
        for place in places {
            let gone = owned.remove(&place);
            gone.iter().for_each(Ownership::end);
        }
    }

    fn revoke(&self, consumer: &Consumer, partitions: &TopicPartitionList) -> KafkaResult<()> {
        let elements = partitions.elements();
        let places = || {
            let places = elements.iter();
            places.map(|one| (one.topic().to_owned(), one.partition()))
        };
        if consumer.assignment_lost() {
            self.tell(News::Lost(places().collect()));
        } else {
            let (held, released) = mpsc::channel();
            self.tell(News::Revoked(places().collect(), Release { _held: held }));
            while !self.ends() && released.recv_timeout(LOOK_EVERY) == STILL_HELD {
                if consumer.assignment_lost() {
                    self.tell(News::Lost(places().collect()));
                    break;
                }
            }
        }
        // Before the member joins again.
        self.disown(places());
        self.shut(places());
        match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_unassign(partitions),
            _ => consumer.unassign(),
        }
    }
}

/// Asks for the committed offsets of these partitions. The group does not wait for unknown ones:
/// these are asked for later.
fn ask_for_committed(
    consumer: &Consumer,
    partitions: &TopicPartitionList,
) -> Vec<(String, i32, Committed)> {
    let said = consumer.committed_offsets(partitions.clone(), ASKED_FOR);
    let said = said.unwrap_or_else(|error| {
        let why = "committed offsets of new partitions are not known yet, will retry";
        tracing::warn!(target: "keylane", %error, "{why}");
        TopicPartitionList::new()
    });
    let one = |element: TopicPartitionListElem<'_>| {
        let (topic, number) = (element.topic().to_owned(), element.partition());
        let said = said.find_partition(&topic, number);
        let committed = said.and_then(|element| committed(&element).ok());
        (topic, number, committed.unwrap_or(Committed::Unknown))
    };
    partitions.elements().into_iter().map(one).collect()
}

/// Reads the coordinator's answer about one partition.
pub(super) fn committed(element: &TopicPartitionListElem<'_>) -> KafkaResult<Committed> {
    element.error()?;
    let Offset::Offset(at) = element.offset() else {
        return Ok(Committed::Nothing);
    };
    let Ok(at) = u64::try_from(at) else {
        return Ok(Committed::Nothing);
    };
    // The client panics at metadata that is not UTF-8.
    let text = catch_unwind(AssertUnwindSafe(|| element.metadata().to_owned()));
    let text = text.unwrap_or_else(|_| "\u{fffd}".to_owned());
    let beyond = beyond(element.topic(), element.partition(), at, &text);
    Ok(Committed::At(at, beyond))
}

/// Decodes the offsets that are done beyond a committed one.
fn beyond(topic: &str, number: i32, committed: u64, text: &str) -> Beyond {
    metadata::decode(committed, text).unwrap_or_else(|error| {
        tracing::warn!(
            target: "keylane",
            partition = %format_args!("{topic}/{number}"),
            committed,
            %error,
            "the metadata of the committed offset is ignored: records after it may be handled again"
        );
        Beyond::default()
    })
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if let Some(MadeAnew { topic, goes_on }) = lock(&self.topics).hear(message) {
            let topic = topic.to_owned();
            self.tell(News::MadeAnew { topic, goes_on });
        }
        if self.config.logs(level) {
            log(level, facility, message);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.heard.hear(reason);
        if let Some(code @ (Code::AllBrokersDown | Code::Authentication)) =
            error.rdkafka_error_code()
        {
            self.explain();
            // Only now: who has waited for it knows the reason.
            self.are_all_down
                .fetch_or(code == Code::AllBrokersDown, Ordering::Release);
        }
        // The source says which topic that is.
        if error.rdkafka_error_code().is_some_and(is_about_topic) {
            return;
        }
        if let Some(left_out) = self.config.errors.hear(&error) {
            let what = "the Kafka client reports an error";
            tracing::warn!(target: "keylane", %error, reason, left_out, "{what}");
        }
    }

    fn stats(&self, statistics: Statistics) {
        let reads_uncommitted = self.config.reads_uncommitted();
        let of_partition = |one: &Partition| {
            let end = match reads_uncommitted {
                true => one.hi_offset,
                false => one.ls_offset,
            };
            // Negative until the client knows them.
            let known = Known {
                log_end: u64::try_from(end).ok(),
                has_leader: one.leader >= 0 || one.unknown,
            };
            (one.partition, known)
        };
        let of_topic = |topic: &Topic| topic.partitions.values().map(of_partition).collect();
        if let Some(group) = &statistics.cgrp {
            let mut joining = lock(&self.joining);
            joining.seen += 1;
            joining.is_under_way = group.state == "up" && JOINING.contains(&&*group.join_state);
        }
        let topics = statistics.topics.iter();
        *lock(&self.known) = topics
            .map(|(name, topic)| (name.clone(), of_topic(topic)))
            .collect();
    }
}

impl ConsumerContext for Context {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let partitions = self.taken(partitions);
        let is_given = event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        self.has_joined.store(is_given, Ordering::Relaxed);
        let done = match is_given {
            true => self.assign(consumer, &partitions),
            false => self.revoke(consumer, &partitions),
        };
        if let Err(error) = done {
            self.tell(News::Failed(format!("a rebalance failed: {error}")));
        }
    }
}
