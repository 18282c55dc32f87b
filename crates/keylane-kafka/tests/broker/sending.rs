//! Records that handlers and spools send.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylane::source::RawMessage;
use keylane_kafka::{Place, Producer, SendError, SpoolTopic};
use keylane_spool::{OnRefused, Refused, Spool};
use testkit_servers::Kafka;

use crate::stage::until;
use crate::support::{PATIENCE, Topic, shared};

fn producer(topic: &Topic) -> Producer {
    let producer = Producer::builder(topic.kafka.bootstrap());
    producer.build().expect("a producer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_is_there_and_a_key_has_one_partition() {
    let topic = Topic::new(shared().await, 6).await;
    let producer = producer(&topic);
    let mut sent = Vec::new();
    for number in 0..40 {
        let mut record = RawMessage::new(format!("{number}")).key(format!("{}", number % 4));
        record.headers.push(("trace".into(), Some("a".into())));
        record.is_tombstone = number == 39;
        if record.is_tombstone {
            record.payload = Bytes::new();
        }
        let place = producer
            .send(&topic.name, &record)
            .await
            .expect("it is sent");
        record.id = Some(format!("{}/{}@{}", topic.name, place.partition, place.offset).into());
        sent.push(record);
    }
    let there = topic.records().await;
    let by_id = |all: Vec<RawMessage>| {
        let all = all.into_iter().map(|raw| (raw.id.clone(), raw));
        all.collect::<BTreeMap<_, _>>()
    };
    let (there, sent) = (by_id(there), by_id(sent));
    assert_eq!(
        there.keys().collect::<Vec<_>>(),
        sent.keys().collect::<Vec<_>>()
    );
    let mut partitions = BTreeMap::new();
    for (id, there) in &there {
        let sent = &sent[id];
        assert_eq!((&there.key, &there.payload), (&sent.key, &sent.payload));
        assert_eq!(
            (there.is_tombstone, &there.headers),
            (sent.is_tombstone, &sent.headers)
        );
        let partition = Place::of(there).unwrap().partition;
        assert_eq!(
            *partitions.entry(there.key.clone()).or_insert(partition),
            partition
        );
    }
}

/// Before the time of the record is over, whose error could not say which topic that is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_does_not_exist_is_named() {
    let topic = Topic::new(shared().await, 1).await;
    let missing = format!("{}.missing", topic.name);
    let record = RawMessage::new("lost").key("k");
    let sent = producer(&topic).send(&missing, &record).await;
    let error = sent.expect_err("there is no such topic");
    assert!(matches!(error, SendError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains(&missing), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_is_refused_and_the_next_is_sent() {
    let topic = Topic::with(shared().await, 1, &[("max.message.bytes", "10000")]).await;
    let producer = producer(&topic);
    // Too large for the client, and for the broker, which ends the earlier client.
    for bytes in [2_000_000, 20_000] {
        let large = RawMessage::new(vec![7; bytes]).key("k");
        let error = producer
            .send(&topic.name, &large)
            .await
            .expect_err("too large");
        assert!(error.is_refused(), "{bytes}: {error}");
        let small = RawMessage::new("small").key("k");
        producer
            .send(&topic.name, &small)
            .await
            .expect("it is sent");
    }
    assert_eq!(topic.records().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_down_confirms_nothing() {
    let topic = Topic::new(Arc::new(Kafka::start().await.expect("a broker")), 1).await;
    let producer = Producer::builder(topic.kafka.bootstrap()).timeout(Duration::from_secs(1));
    let producer = producer.build().expect("a producer");
    let record = RawMessage::new("1").key("k");
    // A broker that has just started takes its time.
    let is_sent = async || producer.send(&topic.name, &record).await.is_ok();
    until("it is sent", is_sent).await;
    topic.kafka.kill(0).await.expect("it is killed");
    let error = producer
        .send(&topic.name, &record)
        .await
        .expect_err("it is down");
    assert!(matches!(error, SendError::NotConfirmed { .. }), "{error}");
    topic.kafka.start_again(0).await.expect("it is there again");
    until("it is sent", is_sent).await;
    assert!(topic.records().await.len() >= 2);
}

/// Checks that each key has the numbers from 0 in this order, each once.
fn assert_in_order(records: &[RawMessage], keys: usize, each: usize) {
    let mut next = BTreeMap::<_, usize>::new();
    for record in records {
        let next = next.entry(record.key.clone()).or_default();
        let number: usize = std::str::from_utf8(&record.payload)
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(number, *next, "{:?}", record.key);
        *next += 1;
    }
    assert_eq!(next.len(), keys);
    assert!(next.values().all(|next| *next == each), "{next:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spool_outlives_its_broker_and_writes_each_once_in_order() {
    const KEYS: usize = 10;
    const EACH: usize = 300;
    let topic = Topic::new(Arc::new(Kafka::start().await.expect("a broker")), 3).await;
    let folder = tempfile::tempdir().unwrap();
    let target = SpoolTopic::new(Producer::builder(topic.kafka.bootstrap()), &topic.name);
    // Shorter than the outage: batches are given up while they are on their way.
    let spool = Spool::builder(target.expect("a target"))
        .dir(folder.path())
        .timeout(Duration::from_millis(300))
        .backoff(Duration::from_millis(10), Duration::from_millis(50))
        .batch(100, 1 << 20, Duration::ZERO)
        .in_flight(3)
        .open()
        .await
        .expect("a spool");
    for number in 0..EACH {
        for key in 0..KEYS {
            let pushed = spool.push(format!("{key}"), format!("{number}"));
            pushed.await.expect("it is stored");
        }
        match number {
            100 => topic.kafka.kill(0).await.expect("it is killed"),
            200 => topic.kafka.start_again(0).await.expect("it is there again"),
            _ => {}
        }
    }
    let report = spool.close().within(PATIENCE).await;
    assert_eq!(report.delivered, (KEYS * EACH) as u64, "{report}");
    let records = topic.records().await;
    assert_in_order(&records, KEYS, EACH);
    let ids = records.iter().map(|raw| raw.header("keylane.id").cloned());
    let ids: std::collections::BTreeSet<_> = ids.map(|id| id.expect("an id")).collect();
    assert_eq!(ids.len(), KEYS * EACH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_refuses_is_found_and_its_key_keeps_its_order() {
    let topic = Topic::with(shared().await, 1, &[("max.message.bytes", "10000")]).await;
    let folder = tempfile::tempdir().unwrap();
    let target = SpoolTopic::new(Producer::builder(topic.kafka.bootstrap()), &topic.name);
    let refused = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&refused);
    let letters = OnRefused::dead_letter(move |letter: Refused| {
        seen.lock().unwrap().push(letter.message.payload.len());
        async { Ok::<(), std::io::Error>(()) }
    });
    let spool = Spool::builder(target.expect("a target"))
        .dir(folder.path())
        .backoff(Duration::from_millis(5), Duration::from_millis(20))
        .on_refused(letters)
        .open()
        .await
        .expect("a spool");
    for number in 0..60 {
        for key in ["a", "b"] {
            spool.push(key, format!("{number}")).await.expect("stored");
        }
        if number == 30 {
            spool.push("a", vec![7; 20_000]).await.expect("stored");
        }
    }
    let report = spool.close().within(PATIENCE).await;
    assert_eq!(
        (report.delivered, report.dead_lettered),
        (120, 1),
        "{report}"
    );
    assert_eq!(*refused.lock().unwrap(), [20_000]);
    assert_in_order(&topic.records().await, 2, 60);
}
