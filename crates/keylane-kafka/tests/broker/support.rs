//! A topic and a group of its own for each test, on a broker that the tests of this binary share.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keylane::source::RawMessage;
use keylane_kafka::{KafkaSource, KafkaSourceBuilder, metadata};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use testkit_servers::Kafka;
use tokio::sync::OnceCell;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::loudness::Loud;

/// The longest wait for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

static SHARED: OnceCell<Arc<Kafka>> = OnceCell::const_new();
static NAMES: AtomicU64 = AtomicU64::new(0);

/// Shows the logs of the source and its client with `RUST_LOG=keylane`, if the test fails.
pub(crate) fn show_log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let shown = tracing_subscriber::fmt::layer().with_test_writer();
    let subscriber = tracing_subscriber::registry().with(shown.with_filter(filter));
    // Another test may have done so.
    let _ = subscriber.with(Loud).try_init();
}

/// The broker of all tests that do not disturb it.
pub(crate) async fn shared() -> Arc<Kafka> {
    let start = async || {
        // A log is compacted as soon as it can be.
        let kafka = Kafka::builder().property("log.cleaner.backoff.ms", "100");
        Arc::new(kafka.start().await.expect("a broker"))
    };
    Arc::clone(SHARED.get_or_init(start).await)
}

/// A topic, and the group that reads it.
#[derive(Clone)]
pub(crate) struct Topic {
    pub(crate) kafka: Arc<Kafka>,
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) partitions: i32,
}

impl Topic {
    pub(crate) async fn new(kafka: Arc<Kafka>, partitions: i32) -> Self {
        Self::with(kafka, partitions, &[("max.message.bytes", "4000000")]).await
    }

    /// Creates a topic with these settings.
    pub(crate) async fn with(
        kafka: Arc<Kafka>,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Self {
        let topic = Self::unmade(kafka, partitions);
        topic.create(settings).await;
        topic
    }

    /// A topic that does not exist yet.
    pub(crate) fn unmade(kafka: Arc<Kafka>, partitions: i32) -> Self {
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        Self {
            kafka,
            name: format!("topic-{number}"),
            group: format!("group-{number}"),
            partitions,
        }
    }

    pub(crate) async fn create(&self, settings: &[(&str, &str)]) {
        let replicas = i32::try_from(self.kafka.nodes()).unwrap_or(1);
        let replication = TopicReplication::Fixed(replicas);
        let mut topic = NewTopic::new(&self.name, self.partitions, replication);
        for (name, value) in settings {
            topic = topic.set(name, value);
        }
        let made = self
            .admin()
            .create_topics(&[topic], &AdminOptions::new())
            .await;
        made.expect("a topic").remove(0).expect("a topic");
        // Some parts of the broker may not know it at once.
        let (client, name, partitions) = (self.consumer(), self.name.clone(), self.partitions);
        let until_there = move || {
            for _ in 0..600 {
                let there = (0..partitions).all(|number| {
                    let marks = client.fetch_watermarks(&name, number, Duration::from_secs(5));
                    marks.is_ok()
                });
                if there {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        tokio::task::spawn_blocking(until_there)
            .await
            .expect("no panic");
    }

    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", self.kafka.bootstrap());
        client
    }

    pub(crate) fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().expect("an admin client")
    }

    /// Creates a topic beside this one, with this suffix to its name.
    pub(crate) async fn beside(&self, end: &str, settings: &[(&str, &str)]) -> Self {
        let mut topic = self.clone();
        topic.name += end;
        topic.create(settings).await;
        topic
    }

    /// Returns all its records, partition by partition. The ids are the places.
    pub(crate) async fn records(&self) -> Vec<RawMessage> {
        let (topic, consumer) = (self.clone(), self.consumer());
        let read = move || {
            let mut records = Vec::new();
            for number in 0..topic.partitions {
                let marks = || consumer.fetch_watermarks(&topic.name, number, PATIENCE);
                let (low, high) = answered(marks);
                let mut from = TopicPartitionList::new();
                from.add_partition_offset(&topic.name, number, Offset::Offset(low))
                    .expect("an offset");
                consumer.assign(&from).expect("a partition");
                let mut next = low;
                while next < high {
                    if let Some(record) = consumer.poll(Duration::from_millis(100)) {
                        let record = record.expect("a record");
                        next = record.offset() + 1;
                        records.push(raw(&record));
                    }
                }
            }
            records
        };
        tokio::task::spawn_blocking(read).await.expect("records")
    }

    /// Returns a consumer that names the group and is not in it.
    pub(crate) fn consumer(&self) -> BaseConsumer {
        let mut client = self.client();
        client.set("group.id", &self.group);
        client.set("enable.auto.commit", "false");
        client.create().expect("a consumer")
    }

    /// Returns a builder with the short times of the tests.
    pub(crate) fn builder(&self) -> KafkaSourceBuilder {
        self.builder_at(self.kafka.bootstrap())
    }

    /// Does the same with these brokers.
    pub(crate) fn builder_at(&self, brokers: String) -> KafkaSourceBuilder {
        KafkaSource::builder(brokers, &self.group)
            .topic(&self.name)
            .property("session.timeout.ms", "3000")
            .property("heartbeat.interval.ms", "200")
            .property("topic.metadata.refresh.interval.ms", "500")
            .property("fetch.wait.max.ms", "50")
    }

    /// Does the same without the properties that the new protocol leaves to the broker.
    pub(crate) fn builder_of_new_protocol(&self, brokers: String) -> KafkaSourceBuilder {
        KafkaSource::builder(brokers, &self.group)
            .topic(&self.name)
            .property("topic.metadata.refresh.interval.ms", "500")
            .property("fetch.wait.max.ms", "50")
    }

    /// Writes these records in this order, and waits until they are written.
    pub(crate) async fn produce(&self, messages: Vec<RawMessage>) {
        self.produce_to(None, messages).await;
    }

    /// Does the same, in one partition.
    pub(crate) async fn produce_to(&self, partition: Option<i32>, messages: Vec<RawMessage>) {
        let mut client = self.client();
        client.set("enable.idempotence", "true");
        client.set("message.max.bytes", "4000000");
        client.set("linger.ms", "1");
        // Java's producers do it like this. By default the client treats an empty key as none.
        client.set("partitioner", "murmur2_random");
        client.set("topic.metadata.refresh.interval.ms", "500");
        let failures = Failures::default();
        let producer: BaseProducer<Failures> = client
            .create_with_context(failures.clone())
            .expect("a producer");
        let name = self.name.clone();
        let produce = move || {
            for raw in messages {
                let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&name);
                if !raw.is_tombstone {
                    record = record.payload(&raw.payload);
                }
                if let Some(key) = &raw.key {
                    record = record.key(&key[..]);
                }
                if let Some(partition) = partition {
                    record = record.partition(partition);
                }
                if !raw.headers.is_empty() {
                    let headers = raw.headers.iter();
                    let headers = headers.fold(OwnedHeaders::new(), |all, (name, value)| {
                        all.insert(Header {
                            key: name,
                            value: value.as_deref(),
                        })
                    });
                    record = record.headers(headers);
                }
                let mut record = Some(record);
                while let Some(next) = record.take() {
                    if let Err((_, back)) = producer.send(next) {
                        producer.poll(Duration::from_millis(5));
                        record = Some(back);
                    }
                }
            }
            producer.flush(PATIENCE).expect("the records are there");
            let failures = failures.0.lock().expect("no panic");
            assert!(
                failures.is_empty(),
                "records were not written: {failures:?}"
            );
        };
        tokio::task::spawn_blocking(produce)
            .await
            .expect("the records are there");
    }

    /// Returns the committed offset and metadata of the group.
    pub(crate) async fn committed(&self) -> Vec<(Option<u64>, String)> {
        let (topic, consumer) = (self.clone(), self.consumer());
        let ask = move || {
            let mut list = TopicPartitionList::new();
            list.add_partition_range(&topic.name, 0, topic.partitions - 1);
            let committed = answered(|| consumer.committed_offsets(list.clone(), PATIENCE));
            let elements = committed.elements();
            let elements = elements.iter().map(|one| match one.offset() {
                Offset::Offset(at) => (u64::try_from(at).ok(), one.metadata().to_owned()),
                _ => (None, String::new()),
            });
            elements.collect()
        };
        tokio::task::spawn_blocking(ask).await.expect("offsets")
    }

    /// Returns where each partition begins and ends.
    pub(crate) async fn ends(&self) -> Vec<(u64, u64)> {
        let (topic, consumer) = (self.clone(), self.consumer());
        let ask = move || {
            let marks = (0..topic.partitions).map(|number| {
                let marks = consumer.fetch_watermarks(&topic.name, number, PATIENCE);
                let (low, high) = marks.expect("the ends of a log");
                (low.unsigned_abs(), high.unsigned_abs())
            });
            marks.collect()
        };
        tokio::task::spawn_blocking(ask).await.expect("ends")
    }

    /// Returns how many records the group has not committed.
    pub(crate) async fn left(&self) -> u64 {
        let (committed, ends) = (self.committed().await, self.ends().await);
        let left = committed
            .iter()
            .zip(ends)
            .map(|((at, text), (low, high))| match at {
                None => high - low,
                Some(at) => {
                    let beyond = metadata::decode(*at, text).expect("our own metadata");
                    let beyond = beyond.runs().map(|run| run.end.min(high) - run.start);
                    high.saturating_sub((*at).max(low)) - beyond.sum::<u64>()
                }
            });
        left.sum()
    }

    /// The members of the group.
    pub(crate) async fn members(&self) -> Vec<String> {
        let (consumer, group) = (self.consumer(), self.group.clone());
        let ask = move || {
            let groups = answered(|| consumer.fetch_group_list(Some(&group), PATIENCE));
            let members = groups.groups().iter().flat_map(|group| group.members());
            members.map(|member| member.id().to_owned()).collect()
        };
        tokio::task::spawn_blocking(ask).await.expect("members")
    }

    /// Removes all members from the group, as if they had been silent for too long.
    pub(crate) async fn expel(&self) {
        for member in self.members().await {
            let (address, group) = (self.kafka.bootstrap(), self.group.clone());
            tokio::task::spawn_blocking(move || leave_group(&address, &group, &member))
                .await
                .expect("no panic");
        }
    }
}

fn raw(record: &BorrowedMessage<'_>) -> RawMessage {
    let mut raw = RawMessage::new(record.payload().unwrap_or_default().to_vec());
    raw.is_tombstone = record.payload().is_none();
    raw.key = record.key().map(|key| key.to_vec().into());
    let place = keylane_kafka::Place {
        topic: record.topic(),
        partition: record.partition(),
        offset: record.offset().unsigned_abs(),
    };
    raw.id = Some(place.to_string().into());
    if let Some(headers) = record.headers() {
        let all = headers.iter();
        let all = all.map(|one| {
            let value = one.value.map(|value| value.to_vec().into());
            (one.key.to_owned(), value)
        });
        raw.headers = all.collect();
    }
    raw
}

/// Repeats a request while a broker that has just started does not know the group's coordinator.
fn answered<T>(ask: impl Fn() -> KafkaResult<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < until, "no answer: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The records that a producer could not write.
#[derive(Clone, Default)]
struct Failures(Arc<Mutex<Vec<KafkaError>>>);

impl ClientContext for Failures {}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, delivered: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = delivered {
            self.0.lock().expect("no panic").push(error.clone());
        }
    }
}

/// Tells the broker that this member leaves. (Kafka protocol, `LeaveGroup`, version 0.)
fn leave_group(address: &str, group: &str, member: &str) {
    let text = |text: &str| {
        let length = i16::try_from(text.len()).expect("a short text");
        [&length.to_be_bytes()[..], text.as_bytes()].concat()
    };
    let (key, version, correlation) = (13_i16, 0_i16, 1_i32);
    let request = [
        &key.to_be_bytes()[..],
        &version.to_be_bytes(),
        &correlation.to_be_bytes(),
        &text("test"),
        &text(group),
        &text(member),
    ]
    .concat();
    let length = i32::try_from(request.len()).expect("a short request");
    let mut broker = TcpStream::connect(address).expect("the broker");
    broker.write_all(&length.to_be_bytes()).expect("a request");
    broker.write_all(&request).expect("a request");
    let mut answer = [0; 10];
    broker.read_exact(&mut answer).expect("an answer");
    let error = i16::from_be_bytes([answer[8], answer[9]]);
    // It may have left meanwhile, or have come again under another name.
    let unknown_member = 25;
    assert!(
        error == 0 || error == unknown_member,
        "the broker refuses to take a member out of its group: {error}"
    );
}

/// Another member that joins the group, takes its partitions without reading them, and leaves.
pub(crate) fn passes_through(
    topic: &Topic,
    properties: &[(&str, &str)],
) -> std::thread::JoinHandle<()> {
    let mut client = topic.client();
    client
        .set("group.id", &topic.group)
        .set("enable.auto.commit", "false")
        .set("session.timeout.ms", "3000")
        .set("heartbeat.interval.ms", "200");
    for (name, value) in properties {
        client.set(*name, *value);
    }
    let name = topic.name.clone();
    std::thread::spawn(move || {
        let consumer: BaseConsumer = client.create().expect("a consumer");
        consumer.subscribe(&[&name]).expect("a subscription");
        let until = Instant::now() + PATIENCE;
        let is_in = || consumer.assignment().is_ok_and(|list| list.count() > 0);
        while !is_in() && Instant::now() < until {
            let _ = consumer.poll(Duration::from_millis(20));
        }
    })
}
