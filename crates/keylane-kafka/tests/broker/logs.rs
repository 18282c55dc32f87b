//! What the log of a partition may look like.

use std::time::Duration;

use keylane::source::RawMessage;
use keylane_kafka::{Keyless, Place, StartAt};
use rdkafka::admin::{AdminOptions, NewPartitions};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::consumer::{Consumer, record, until};
use crate::support::{PATIENCE, Topic, shared};

/// Texts `a0`, `a1` and so on.
fn texts(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{name}{n}")).collect()
}

fn records(name: &str, count: usize) -> Vec<RawMessage> {
    let texts = texts(name, count).into_iter();
    texts.map(|text| record(&text.clone(), text)).collect()
}

/// Records of a transaction that is committed, or aborted.
async fn transaction(topic: &Topic, texts: Vec<String>, commits: bool) {
    let (mut client, name) = (topic.client(), topic.name.clone());
    client.set("transactional.id", format!("{name}-producer"));
    let write = move || {
        let producer: BaseProducer = client.create().expect("a producer");
        producer.init_transactions(PATIENCE).expect("a producer");
        producer.begin_transaction().expect("a transaction");
        for text in &texts {
            let record = BaseRecord::to(&name).key(text).payload(text).partition(0);
            producer
                .send(record)
                .map_err(|(error, _)| error)
                .expect("room");
        }
        producer.flush(PATIENCE).expect("the records are there");
        match commits {
            true => producer.commit_transaction(PATIENCE),
            false => producer.abort_transaction(PATIENCE),
        }
        .expect("the end of a transaction");
    };
    tokio::task::spawn_blocking(write).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_and_aborted_records_of_transactions_hold_up_nothing() {
    let topic = Topic::new(shared().await, 1).await;
    transaction(&topic, texts("a", 5), true).await;
    transaction(&topic, texts("b", 5), false).await;
    transaction(&topic, texts("c", 5), true).await;
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(10).await;
    consumer.stop().await;
    transaction(&topic, texts("d", 1), true).await;
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(1).await;
    assert_eq!(consumer.texts(), texts("d", 1));
    let report = consumer.stop().await;
    assert_eq!((report.received, report.acked), (1, 1));
    // Two transactions of five and one of one are behind it, and the mark of the last one is not.
    let committed = topic.committed().await;
    let (_, high) = topic.ends().await[0];
    assert_eq!(committed[0].0, Some(high - 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_was_cut_off_below_the_frontier_goes_on_where_it_begins() {
    let topic = Topic::new(shared().await, 1).await;
    topic.produce(records("a", 10)).await;
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(10).await;
    consumer.stop().await;
    topic.produce(records("b", 10)).await;
    let mut cut = TopicPartitionList::new();
    cut.add_partition_offset(&topic.name, 0, Offset::Offset(15))
        .expect("an offset");
    let admin = topic.admin();
    let deleted = admin.delete_records(&cut, &AdminOptions::new()).await;
    deleted.expect("the log is cut off");
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(5).await;
    assert_eq!(consumer.texts(), texts("b", 10)[5..]);
    consumer.stop().await;
    assert_eq!(topic.committed().await[0].0, Some(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_was_made_anew_is_read_from_its_beginning() {
    let topic = Topic::new(shared().await, 1).await;
    topic.produce(records("a", 10)).await;
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(10).await;
    let admin = topic.admin();
    let deleted = admin.delete_topics(&[&topic.name], &AdminOptions::new());
    deleted
        .await
        .expect("an answer")
        .remove(0)
        .expect("a deletion");
    topic.create(&[]).await;
    topic.produce(records("b", 3)).await;
    consumer.until_handled(13).await;
    assert_eq!(consumer.texts()[10..], texts("b", 3));
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_appears_late_is_read() {
    let topic = Topic::unmade(shared().await, 2);
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    until("the source is open", || {
        consumer.intake.stats().restarts == 0
    })
    .await;
    topic.create(&[]).await;
    topic.produce(records("a", 6)).await;
    consumer.until_handled(6).await;
    assert_eq!(consumer.stop().await.acked, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_are_added_are_read() {
    let mut topic = Topic::new(shared().await, 1).await;
    topic.produce(records("a", 3)).await;
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(3).await;
    let admin = topic.admin();
    let more = NewPartitions::new(&topic.name, 4);
    let added = admin.create_partitions(&[more], &AdminOptions::new()).await;
    added.expect("an answer").remove(0).expect("partitions");
    topic.partitions = 4;
    for partition in 1..4 {
        topic
            .produce_to(Some(partition), records(&format!("p{partition}-"), 2))
            .await;
    }
    consumer.until_handled(9).await;
    consumer.stop().await;
    assert_eq!(topic.left().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tombstone_is_no_empty_payload() {
    let topic = Topic::new(shared().await, 1).await;
    let mut tombstone = record("a", "");
    tombstone.is_tombstone = true;
    topic.produce(vec![tombstone, record("a", "")]).await;
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(2).await;
    let seen: Vec<_> = consumer
        .handled()
        .iter()
        .map(|raw| raw.is_tombstone)
        .collect();
    assert_eq!(seen, [true, false]);
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_without_a_key_have_the_order_of_the_policy() {
    let topic = Topic::new(shared().await, 1).await;
    topic
        .produce(vec![RawMessage::new("a"), record("", "b")])
        .await;
    for (policy, key) in [
        (Keyless::Unordered, None),
        (Keyless::ByPartition, Some(format!("{}/0", topic.name))),
    ] {
        let topic = Topic {
            group: format!("{}-{policy:?}", topic.group),
            ..topic.clone()
        };
        let source = topic.builder().keyless(policy).build().expect("a source");
        let consumer = Consumer::of(source);
        consumer.until_handled(2).await;
        let handled = consumer.handled();
        let without = handled.iter().find(|raw| raw.payload == "a").expect("a");
        assert_eq!(
            without.key.as_deref(),
            key.as_ref().map(|key| key.as_bytes())
        );
        // An empty key is a key.
        let empty = handled.iter().find(|raw| raw.payload == "b").expect("b");
        assert_eq!(empty.key.as_deref(), Some(&b""[..]));
        consumer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_has_its_place_its_time_and_its_headers() {
    let topic = Topic::new(shared().await, 1).await;
    let mut sent = record("a", "text");
    sent.headers = vec![("kind".to_owned(), "order".into())];
    topic.produce(vec![record("a", "first"), sent]).await;
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(2).await;
    let raw = consumer.handled().remove(1);
    let place = Place::of(&raw).expect("a place");
    assert_eq!(place.to_string(), format!("{}/0@1", topic.name));
    assert_eq!(raw.header("kind").expect("a header"), "order");
    let age = raw
        .enqueued_at
        .expect("a time")
        .elapsed()
        .expect("the past");
    assert!(age < Duration::from_secs(3_600));
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_begins_at_the_end_leaves_nothing_out_afterwards() {
    let topic = Topic::new(shared().await, 1).await;
    topic.produce(records("a", 5)).await;
    let source = || topic.builder().start_at(StartAt::Latest).build();
    let consumer = Consumer::of(source().expect("a source"));
    let control_says = async || topic.committed().await[0].0 == Some(5);
    while !control_says().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    consumer.stop().await;
    // While no one reads.
    topic.produce(records("b", 2)).await;
    let consumer = Consumer::of(source().expect("a source"));
    consumer.until_handled(2).await;
    assert_eq!(consumer.texts(), texts("b", 2));
    consumer.stop().await;
}
