//! A partition whose only node is down: the others go on, and it continues when the node is back.

use std::sync::Arc;

use keylane::consume::IntakeState;
use keylane_kafka::{Producer, Redrive};
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::Consumer as _;
use testkit_servers::Kafka;

use crate::stage::{Member, Stage, until};
use crate::support::{Topic, show_log};

/// The node that goes down.
const GONE: i32 = 2;

/// A topic with a partition on each of these nodes, and no other copy of them.
async fn topic_on(kafka: &Arc<Kafka>, nodes: &[i32]) -> Stage {
    let topic = Topic::unmade(Arc::clone(kafka), nodes.len() as i32);
    let copies: Vec<_> = nodes.chunks(1).collect();
    let new = NewTopic::new(
        &topic.name,
        topic.partitions,
        TopicReplication::Variable(&copies),
    );
    let admin = topic.admin();
    let made = admin.create_topics(&[new], &AdminOptions::new()).await;
    made.expect("a topic").remove(0).expect("a topic");
    let stage = Stage::of(topic);
    until("all of its partitions are there", async || {
        let (topic, consumer) = (stage.topic.clone(), stage.topic.consumer());
        let all = move || {
            let patience = std::time::Duration::from_secs(1);
            let marks = |number| consumer.fetch_watermarks(&topic.name, number, patience);
            (0..topic.partitions).all(|number| marks(number).is_ok())
        };
        tokio::task::spawn_blocking(all).await.expect("no panic")
    })
    .await;
    stage
}

/// Publishes this many records to each partition.
async fn publish(stage: &Stage, of_each: u64) {
    for partition in 0..stage.topic.partitions {
        stage.publish_to(Some(partition), 0..of_each).await;
    }
}

/// Checks that this partition has failed everywhere that shows it, and no other one.
async fn has_failed(member: &Member, topic: &str, partition: i32) {
    let name = format!("{topic}/{partition}");
    until(&format!("{name} has failed"), async || {
        let failed = member.intake.stats().failed_parts;
        failed.iter().any(|one| one.part == name)
    })
    .await;
    let stats = member.intake.stats();
    assert_eq!((stats.state, stats.restarts), (IntakeState::Running, 0));
    assert_eq!(stats.failed_parts.len(), 1, "{stats:?}");
    let all = member.control.partitions();
    let failed: Vec<_> = all.iter().filter(|one| one.failure.is_some()).collect();
    let [status] = failed[..] else {
        panic!("{all:?}");
    };
    assert_eq!(
        (status.topic.as_str(), status.partition),
        (topic, partition)
    );
}

async fn nothing_fails(member: &Member) {
    until("nothing fails", async || {
        let status = member.control.partitions();
        member.intake.stats().failed_parts.is_empty()
            && status.iter().all(|one| one.failure.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_without_a_leader_holds_up_no_other() {
    show_log();
    let kafka = Kafka::builder().nodes(3).heap_mib(256).start().await;
    let kafka = Arc::new(kafka.expect("a cluster"));
    let new = topic_on(&kafka, &[0, 1, GONE]).await;
    let old = topic_on(&kafka, &[0, 1]).await;
    let more = topic_on(&kafka, &[GONE]).await;
    let busy = topic_on(&kafka, &[0, GONE]).await;
    let letters = topic_on(&kafka, &[0, GONE]).await;
    let back = topic_on(&kafka, &[0]).await;
    for stage in [&new, &more, &busy, &letters] {
        publish(stage, 40).await;
    }
    // One group exists before, and one has all of its partitions when the node goes down.
    let before = old.member();
    publish(&old, 20).await;
    old.committed(&[20, 20]).await;
    before.stop().await;
    let of_busy = busy.member();
    busy.committed(&[40, 40]).await;

    kafka.kill(GONE as usize).await.expect("it is killed");
    let of_new = new.member();
    let of_old = old.member_of(old.topic.builder().topic(&more.topic.name), old.script());
    let producer = Producer::builder(kafka.bootstrap())
        .build()
        .expect("a producer");
    let redrive = Redrive::new(kafka.bootstrap(), &letters.topic.name, producer);
    let redrive = redrive.group(&letters.topic.group).to(&back.topic.name);
    let redrive = tokio::spawn(redrive.run());
    let left = [(&new, &of_new), (&busy, &of_busy)];
    for partition in 0..2 {
        old.publish_to(Some(partition), 0..20).await;
    }
    busy.publish_to(Some(0), 0..20).await;
    old.committed(&[40, 40]).await;
    new.committed_of(0, 40).await;
    new.committed_of(1, 40).await;
    busy.committed_of(0, 60).await;
    has_failed(&of_old, &more.topic.name, 0).await;
    has_failed(&of_new, &new.topic.name, 2).await;
    has_failed(&of_busy, &busy.topic.name, 1).await;

    until("the letters of the other partition went back", async || {
        back.topic.ends().await == [(0, 40)]
    })
    .await;
    assert!(!redrive.is_finished());

    kafka.start_again(GONE as usize).await.expect("it is there");
    busy.publish_to(Some(1), 0..20).await;
    new.committed(&[40, 40, 40]).await;
    busy.committed(&[60, 60]).await;
    // The records of its own partitions and of those of the other topic.
    old.handled(40 + 40 + 40).await;
    for (stage, member) in left {
        nothing_fails(member).await;
        stage.nothing_left().await;
    }
    nothing_fails(&of_old).await;
    let redriven = redrive.await.expect("no panic").expect("a redrive");
    assert_eq!(redriven.redriven, 80);
    for member in [of_new, of_old, of_busy] {
        member.stop().await;
    }
}
