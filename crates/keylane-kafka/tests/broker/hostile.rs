//! Malicious records, unusually large or odd records, and brokers with lower limits than ours.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane::OnExhausted;
use keylane::source::frontier::Limits;
use keylane::source::{
    Deliveries, Features, RawMessage, Received, Settlement, Source, SourceError,
};
use keylane_kafka::{KafkaPosition, KafkaSource, Producer, Redrive, SpoolTopic};
use keylane_spool::{SinkError, Spool, SpoolSink, Spooled, async_trait};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::Kafka;
use tokio::time::{sleep, timeout};

use crate::logs::transactions;
use crate::stage::{Member, Stage, id_of, message, until, waiting};
use crate::support::{PATIENCE, Topic, shared, show_log};

/// Counts how often a source is asked for more.
struct Counted {
    source: KafkaSource,
    calls: Arc<AtomicU64>,
}

impl Source for Counted {
    type Message = RawMessage;
    type Position = KafkaPosition;

    fn features(&self) -> Features {
        self.source.features()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.source.open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, KafkaPosition>,
    ) -> Result<Received<KafkaPosition>, SourceError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.source.receive(into).await
    }

    async fn settle(&mut self, settled: &[Settlement<KafkaPosition>]) -> Result<(), SourceError> {
        self.source.settle(settled).await
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.source.confirm().await
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        self.source.close().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_at_its_limit_waits_and_does_not_spin() {
    let stage = Stage::new(1).await;
    stage.publish(0..20).await;
    let gate = Gate::new();
    let limits = Limits::default().open(4);
    let source = stage.topic.builder().limits(limits).build();
    let source = source.expect("a source");
    let (control, calls) = (source.control(), Arc::<AtomicU64>::default());
    let source = Counted {
        source,
        calls: Arc::clone(&calls),
    };
    let consumer = stage.consumer(waiting(&stage, &gate, |_| true));
    let member = Member::new(source, control, consumer);
    until("it is full", async || member.intake.stats().received == 4).await;
    let before = calls.load(Ordering::Relaxed);
    sleep(Duration::from_secs(1)).await;
    let calls = calls.load(Ordering::Relaxed) - before;
    gate.open();
    stage.handled(20).await;
    stage.committed(&[20]).await;
    member.stop().await;
    assert!(calls < 200, "it was asked {calls} times within a second");
}

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes
        .iter()
        .fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// A length of less than 64, as records encode it.
fn short(length: usize) -> u8 {
    assert!(length < 64, "a short text");
    (length as u8) << 1
}

/// Writes a record with one header, whose name may be any bytes. No client here can do it. (Kafka
/// protocol, `Produce`, version 3.)
fn produce_with_header(topic: &Topic, key: &[u8], value: &[u8], name: &[u8]) {
    let mut record = vec![0, 0, 0];
    for text in [key, value] {
        record.push(short(text.len()));
        record.extend(text);
    }
    record.push(short(1));
    for text in [name, b"kept"] {
        record.push(short(text.len()));
        record.extend(text);
    }
    record.insert(0, short(record.len()));
    let checked = [
        &[0; 6][..],
        &1_700_000_000_000_i64.to_be_bytes(),
        &1_700_000_000_000_i64.to_be_bytes(),
        &[0xff; 14],
        &1_i32.to_be_bytes(),
        &record,
    ]
    .concat();
    let after_length = [
        &(-1_i32).to_be_bytes()[..],
        &[2],
        &crc(&checked).to_be_bytes(),
        &checked,
    ]
    .concat();
    let length = |bytes: usize| i32::try_from(bytes).expect("a short one").to_be_bytes();
    let batch = [&[0; 8][..], &length(after_length.len()), &after_length].concat();
    let text = |text: &str| {
        let length = i16::try_from(text.len()).expect("a short text");
        [&length.to_be_bytes()[..], text.as_bytes()].concat()
    };
    let request = [
        // The request type, its version, and its number.
        &[0, 0, 0, 3, 0, 0, 0, 1][..],
        &text("test"),
        // No transaction, all replicas, ten seconds.
        &(-1_i16).to_be_bytes(),
        &(-1_i16).to_be_bytes(),
        &10_000_i32.to_be_bytes(),
        // One topic, and its first partition.
        &1_i32.to_be_bytes(),
        &text(&topic.name),
        &1_i32.to_be_bytes(),
        &0_i32.to_be_bytes(),
        &length(batch.len()),
        &batch,
    ]
    .concat();
    let mut broker = TcpStream::connect(topic.kafka.bootstrap()).expect("the broker");
    broker.write_all(&length(request.len())).expect("a request");
    broker.write_all(&request).expect("a request");
    let mut answer = vec![0; 4];
    broker.read_exact(&mut answer).expect("an answer");
    let length = u32::from_be_bytes(answer[..4].try_into().unwrap());
    answer = vec![0; length as usize];
    broker.read_exact(&mut answer).expect("an answer");
    // Behind the number, the count of topics, the name, the count of partitions, and the partition.
    let at = 4 + 4 + 2 + topic.name.len() + 4 + 4;
    assert_eq!(answer[at..at + 2], [0, 0], "the broker refuses: {answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_whose_name_is_no_text_stops_nothing() {
    let stage = Stage::new(1).await;
    for (id, name) in [(1_u64, &b"trace"[..]), (2, b"\xff\xfe"), (3, b"a\0b")] {
        produce_with_header(&stage.topic, b"7", &id.to_be_bytes(), name);
    }
    let member = stage.member();
    stage.committed(&[3]).await;
    member.stop().await;
    let headers: Vec<_> = stage.done().into_iter().map(|raw| raw.headers).collect();
    let kept = |name: &str| vec![(name.to_owned(), Some(Bytes::from("kept")))];
    assert_eq!(headers[0], kept("trace"));
    assert_eq!(headers[1], [("\u{fffd}".to_owned(), None)]);
    // The client ends a name there.
    assert_eq!(headers[2], kept("a"));
}

/// The client's default limit is a million bytes, and a broker's is a little more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_may_be_as_large_as_its_topic_takes() {
    let stage = Stage::new(1).await;
    let settings = [("max.message.bytes", "4000000")];
    let letters = stage.topic.beside(".dead", &settings).await;
    let sent = RawMessage::new(vec![7; 2_000_000]).key("k");
    stage.topic.produce(vec![sent]).await;
    let consumer = by_key()
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(|_: RawMessage| async { Err("never".into()) }))
        .expect("a consumer");
    let source = stage.topic.builder().dead_letters(&letters.name).build();
    let intake = consumer.consume(source.expect("a source"));
    let intake = intake.expect("an intake");
    stage.committed(&[1]).await;
    assert_eq!(intake.stop().await.dead_lettered, 1);
    let kept = letters.records().await;
    assert_eq!((kept.len(), kept[0].payload.len()), (1, 2_000_000));
}

/// The log of the letters ends with a marker, which is no record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_of_letters_that_were_written_in_a_transaction_ends() {
    let stage = Stage::new(1).await;
    let to = stage.topic.beside(".to", &[]).await;
    let all = vec![(vec![(1, 1), (2, 2)], true), (vec![(3, 3)], false)];
    transactions(&stage.topic, all).await;
    let brokers = stage.topic.kafka.bootstrap();
    let producer = Producer::builder(&brokers).build().expect("a producer");
    for redriven in [2, 0] {
        let redrive = Redrive::new(&brokers, &stage.topic.name, producer.clone());
        let report = timeout(PATIENCE, redrive.to(&to.name).run()).await;
        let report = report.expect("it ends").expect("a redrive");
        assert_eq!(report.redriven, redriven);
    }
    assert_eq!(to.records().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_takes_less_metadata_is_given_less() {
    show_log();
    let kafka = Kafka::builder().property("offset.metadata.max.bytes", "16");
    let kafka = Arc::new(kafka.start().await.expect("a broker"));
    let stage = Stage::of(Topic::new(kafka, 1).await);
    let gate = Gate::new();
    let member = stage.member_with(waiting(&stage, &gate, |id| id % 2 == 1));
    stage.publish(0..100).await;
    stage.handled(50).await;
    until("what is done beyond is committed", async || {
        !stage.topic.committed().await[0].1.is_empty()
    })
    .await;
    gate.open();
    stage.committed(&[100]).await;
    member.stop().await;
    let once: Vec<u64> = (0..100).collect();
    assert_eq!(stage.offsets(0), once);
}

/// Writes a part of a batch first, as if the batch had timed out on its way.
struct Interrupted(SpoolTopic);

#[async_trait]
impl SpoolSink for Interrupted {
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        if batch.len() < 4 {
            return self.0.write(batch).await;
        }
        // The first poll sends it.
        let first = futures::poll!(self.0.write(&batch[..2]));
        assert!(first.is_pending(), "it is on its way");
        // The broker has refused it by then.
        sleep(Duration::from_secs(1)).await;
        self.0.write(batch).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_batch_passes_what_an_earlier_call_could_not_write() {
    let topic = Topic::with(shared().await, 1, &[("max.message.bytes", "10000")]).await;
    let folder = tempfile::tempdir().unwrap();
    let target = SpoolTopic::new(Producer::builder(topic.kafka.bootstrap()), &topic.name);
    let spool = Spool::builder(Interrupted(target.expect("a target")))
        .dir(folder.path())
        .backoff(Duration::from_millis(5), Duration::from_millis(20))
        .batch(4, 1 << 20, Duration::from_secs(5))
        .on_refused(keylane_spool::OnRefused::dead_letter(
            |_: keylane_spool::Refused| async { Ok::<(), std::io::Error>(()) },
        ))
        .open()
        .await
        .expect("a spool");
    spool.push("a", vec![7; 20_000]).await.expect("stored");
    for number in 0..3 {
        spool.push("a", format!("{number}")).await.expect("stored");
    }
    let report = spool.close().within(PATIENCE).await;
    assert_eq!((report.delivered, report.dead_lettered), (3, 1), "{report}");
    let records = topic.records().await;
    let written: Vec<_> = records.iter().map(|raw| raw.payload.clone()).collect();
    assert_eq!(written, ["0", "1", "2"]);
}

/// One record that the broker refuses ends the client of all senders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_senders_hears_what_became_of_its_record() {
    const SENDERS: u64 = 60;
    const EACH: u64 = 40;
    let topic = Topic::with(shared().await, 6, &[("max.message.bytes", "10000")]).await;
    let producer = Producer::builder(topic.kafka.bootstrap()).build();
    let producer = producer.expect("a producer");
    let senders = (0..SENDERS).map(|key| {
        let (producer, name) = (producer.clone(), topic.name.clone());
        tokio::spawn(async move {
            for id in 1..=EACH {
                if key % 20 == 0 && id % 4 == 0 {
                    let large = RawMessage::new(vec![7; 20_000]).key(key.to_string());
                    while !producer
                        .send(&name, &large)
                        .await
                        .is_err_and(|error| error.is_refused())
                    {}
                }
                let record = message(key, id);
                while producer.send(&name, &record).await.is_err() {}
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        let ended = timeout(Duration::from_secs(120), sender).await;
        ended.expect("each is answered").expect("no panic");
    }
    let records = topic.records().await;
    for key in 0..SENDERS {
        let key = Bytes::from(key.to_string());
        let of_key = records.iter().filter(|raw| raw.key.as_ref() == Some(&key));
        let mut ids: Vec<_> = of_key.filter_map(id_of).collect();
        assert!(ids.is_sorted(), "{key:?}: {ids:?}");
        ids.dedup();
        assert_eq!(ids.len() as u64, EACH, "{key:?}");
    }
}
