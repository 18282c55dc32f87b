//! What the next owner of a partition does, and what it does not do again.

use keylane_kafka::MetadataFull;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::consumer::{Consumer, record, until};
use crate::support::{Topic, shared};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_beyond_the_frontier_is_not_done_again() {
    let topic = Topic::new(shared().await, 1).await;
    let sent = (0..40).map(|n| {
        record(
            if n % 10 == 3 { "slow" } else { "quick" },
            format!("{n:02}"),
        )
    });
    topic.produce(sent.collect()).await;
    let source = topic.builder().build().expect("a source");
    let control = source.control();
    let consumer = Consumer::holding(source, &["slow"]);
    consumer.until_handled(36).await;
    until("all that is done is committed", || {
        let partitions = control.partitions();
        partitions
            .first()
            .is_some_and(|one| one.committed == Some(3) && one.beyond == 33)
    })
    .await;
    let status = control.partitions().remove(0);
    assert_eq!((status.position, status.end, status.open), (3, 40, 4));
    let report = consumer.stop().await;
    assert_eq!((report.acked, report.given_back), (36, 4), "{report}");
    assert_eq!(topic.left().await, 4);

    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(4).await;
    assert_eq!(consumer.texts(), ["03", "13", "23", "33"]);
    let report = consumer.stop().await;
    assert_eq!((report.received, report.acked), (4, 4), "{report}");
    assert_eq!(topic.committed().await, [(Some(40), String::new())]);
}

/// Commits as another program does, without being a member.
async fn commit(topic: &Topic, at: i64, text: &str) {
    let (topic, text) = (topic.clone(), text.to_owned());
    let commit = move || {
        let mut list = TopicPartitionList::new();
        let mut element = list.add_partition(&topic.name, 0);
        element.set_offset(Offset::Offset(at)).expect("an offset");
        element.set_metadata(&text);
        let consumer = topic.consumer();
        consumer.commit(&list, CommitMode::Sync).expect("a commit");
    };
    tokio::task::spawn_blocking(commit).await.expect("a commit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_parallel_consumer_has_done_is_not_done_again() {
    let topic = Topic::new(shared().await, 1).await;
    let sent = (0..10).map(|n| record("key", n.to_string()));
    topic.produce(sent.collect()).await;
    // Run lengths, version 1, of its own class: one that is not done, and one that is.
    commit(&topic, 4, "bgABAAE=").await;
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(5).await;
    assert_eq!(consumer.texts(), ["4", "6", "7", "8", "9"]);
    consumer.stop().await;
    assert_eq!(topic.left().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_another_program_is_ignored_and_leaves_nothing_out() {
    for text in ["leader epoch 5", "bg", "AAAA", "\u{1f980}"] {
        let topic = Topic::new(shared().await, 1).await;
        let sent = (0..6).map(|n| record("key", n.to_string()));
        topic.produce(sent.collect()).await;
        commit(&topic, 2, text).await;
        let consumer = Consumer::of(topic.builder().build().expect("a source"));
        consumer.until_handled(4).await;
        assert_eq!(consumer.texts(), ["2", "3", "4", "5"], "{text}");
        consumer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_pauses_where_its_metadata_is_nearly_full_and_goes_on_afterwards() {
    let topic = Topic::new(shared().await, 1).await;
    // What is done and what is not in turns, so that the metadata grows with each.
    let first = record("slow", "00000");
    let sent = (1..400).map(|n| record(&format!("{}", n % 7), format!("{n:05}")));
    topic
        .produce(std::iter::once(first).chain(sent).collect())
        .await;
    let builder = topic.builder().metadata_full(MetadataFull::Pause);
    let source = builder.metadata_chars(8).build().expect("a source");
    let control = source.control();
    let consumer = Consumer::holding(source, &["slow"]);
    consumer.until_handled(399).await;
    until("the partition is full", || {
        control.partitions().first().is_some_and(|one| one.is_full)
    })
    .await;
    topic.produce(vec![record("late", "late")]).await;
    consumer.let_go();
    consumer.until_handled(401).await;
    until("it is not full any more", || {
        control.partitions().first().is_some_and(|one| !one.is_full)
    })
    .await;
    consumer.stop().await;
    assert_eq!(topic.left().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_partition_hands_over_nothing_and_the_others_go_on() {
    let topic = Topic::new(shared().await, 2).await;
    let source = topic.builder().build().expect("a source");
    let control = source.control();
    control.pause(&topic.name, 0);
    let consumer = Consumer::of(source);
    for partition in 0..2 {
        let sent = (0..3).map(|n| record("key", format!("{partition}-{n}")));
        topic.produce_to(Some(partition), sent.collect()).await;
    }
    consumer.until_handled(3).await;
    assert_eq!(consumer.texts(), ["1-0", "1-1", "1-2"]);
    assert!(control.partitions()[0].is_paused && !control.partitions()[1].is_paused);
    control.resume(&topic.name, 0);
    consumer.until_handled(6).await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_leaves_the_group_at_once() {
    let topic = Topic::new(shared().await, 2).await;
    topic.produce(vec![record("a", "a")]).await;
    let consumer = Consumer::of(topic.builder().build().expect("a source"));
    consumer.until_handled(1).await;
    assert_eq!(topic.members().await.len(), 1);
    consumer.stop().await;
    assert_eq!(topic.members().await, Vec::<String>::new());
}
