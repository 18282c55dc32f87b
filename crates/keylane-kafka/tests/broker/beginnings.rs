//! Where partitions begin: those of a new group, those that come later, and those whose log begins
//! behind the committed offset.

use std::time::Duration;

use keylane::consume::IntakeState;
use keylane_kafka::{KafkaSourceBuilder, OnOvertaken, StartAt};
use rdkafka::admin::{AdminOptions, NewPartitions};

use crate::logs::{commit, delete_records_below};
use crate::stage::{Stage, id_of, message, until};
use crate::support::{Topic, shared, show_log};

async fn grow(stage: &mut Stage, partitions: i32) {
    let more = [NewPartitions::new(&stage.topic.name, partitions as usize)];
    let admin = stage.topic.admin();
    let grown = admin.create_partitions(&more, &AdminOptions::new()).await;
    grown.expect("a topic").remove(0).expect("it grows");
    stage.topic.partitions = partitions;
}

fn latest(stage: &Stage) -> KafkaSourceBuilder {
    stage.topic.builder().start_at(StartAt::Latest)
}

/// All published records are handled, except this many.
async fn all_but(stage: &Stage, left_out: u64, published: &[u64]) {
    stage.handled(published.len()).await;
    stage.nothing_left().await;
    let mut ids: Vec<_> = stage.done().iter().filter_map(id_of).collect();
    ids.sort_unstable();
    assert!(ids.iter().all(|id| *id > left_out), "{ids:?}");
    assert_eq!(ids, published);
}

/// The client looks for new partitions every ten seconds: records from before that are not left
/// out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_are_added_begin_at_their_start_with_latest_as_well() {
    let mut stage = Stage::new(1).await;
    stage.publish([1; 5]).await;
    let builder = latest(&stage).property("topic.metadata.refresh.interval.ms", "3000");
    let member = stage.member_of(builder, stage.script());
    stage.committed(&[5]).await;
    grow(&mut stage, 3).await;
    let mut ids = Vec::new();
    for partition in 0..3 {
        ids.extend(stage.publish_to(Some(partition), 0..20).await);
    }
    all_but(&stage, 5, &ids).await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_appears_late_begins_at_its_start_with_latest_as_well() {
    show_log();
    let stage = Stage::of(Topic::unmade(shared().await, 2));
    let builder = latest(&stage).property("topic.metadata.refresh.interval.ms", "3000");
    let member = stage.member_of(builder, stage.script());
    until("it runs", async || {
        member.intake.stats().state == IntakeState::Running
    })
    .await;
    stage.topic.create(&[]).await;
    let ids = stage.publish(0..30).await;
    all_but(&stage, 0, &ids).await;
    member.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_while_a_group_is_away_begins_at_its_start_with_latest_as_well() {
    let mut stage = Stage::new(1).await;
    stage.publish([1; 5]).await;
    let member = stage.member_of(latest(&stage), stage.script());
    stage.committed(&[5]).await;
    member.stop().await;
    grow(&mut stage, 3).await;
    let mut ids = Vec::new();
    for partition in 0..3 {
        ids.extend(stage.publish_to(Some(partition), 0..20).await);
    }
    // A topic that exists when the group comes back with it.
    let other = stage.topic.beside("-more", &[]).await;
    other
        .produce((200..210).map(|id| message(id, id)).collect())
        .await;
    ids.extend(200..210);
    let builder = latest(&stage).topic(&other.name);
    let member = stage.member_of(builder, stage.script());
    all_but(&stage, 5, &ids).await;
    member.stop().await;
}

/// The log of the group's partition begins behind the committed offset. Another partition is
/// intact.
async fn overtaken(policy: OnOvertaken) -> Stage {
    let stage = Stage::new(2).await;
    stage.publish_to(Some(0), [1; 110]).await;
    stage.publish_to(Some(1), [2; 10]).await;
    commit(&stage.topic, 10, "").await;
    delete_records_below(&stage.topic, 60).await;
    let builder = latest(&stage).on_overtaken(policy);
    let member = stage.member_of(builder, stage.script());
    stage.committed_of(1, 10).await;
    match policy {
        OnOvertaken::Halt => {
            let name = format!("{}/0", stage.topic.name);
            until("the partition has failed", async || {
                let failed = member.intake.stats().failed_parts;
                failed.iter().any(|failed| failed.part == name)
            })
            .await;
            let stats = member.intake.stats();
            assert_eq!(stats.state, IntakeState::Running, "{stats:?}");
            for number in ["10", "60"] {
                assert!(stats.failed_parts[0].why.contains(number), "{stats:?}");
            }
            let failure = member.status(0).and_then(|status| status.failure);
            assert_eq!(failure.expect("it is seen").why, stats.failed_parts[0].why);
        }
        _ => {
            stage.committed_of(0, 110).await;
            stage.publish_to(Some(0), [1; 5]).await;
            stage.committed_of(0, 115).await;
            assert!(member.intake.stats().failed_parts.is_empty());
        }
    }
    let seen = member.status(0).and_then(|status| status.overtaken);
    let seen = seen.expect("it is seen");
    assert_eq!((seen.committed, seen.log_start), (10, 60));
    member.stop().await;
    assert_eq!(stage.offsets(1), Vec::from_iter(0..10));
    stage
}

/// This holds for each `start_at`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_retention_has_overtaken_goes_on_at_the_start_of_its_log() {
    let stage = overtaken(OnOvertaken::Earliest).await;
    assert_eq!(stage.offsets(0), Vec::from_iter(60..115));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_retention_has_overtaken_may_go_on_at_the_end_of_its_log() {
    let stage = overtaken(OnOvertaken::Latest).await;
    assert_eq!(stage.offsets(0), Vec::from_iter(110..115));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_retention_has_overtaken_may_halt_and_holds_up_no_other() {
    let stage = overtaken(OnOvertaken::Halt).await;
    assert!(stage.offsets(0).is_empty());
    assert_eq!(stage.topic.committed().await[0].0, Some(10));
}

/// And goes on when its offset is set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_has_halted_goes_on_at_the_offset_that_is_set() {
    let stage = overtaken(OnOvertaken::Halt).await;
    // The broker takes an offset from outside only while the group has no member.
    until("the group is empty", async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        stage.topic.members().await.is_empty()
    })
    .await;
    commit(&stage.topic, 70, "").await;
    let member = stage.member_of(
        latest(&stage).on_overtaken(OnOvertaken::Halt),
        stage.script(),
    );
    stage.committed_of(0, 110).await;
    member.stop().await;
    assert_eq!(stage.offsets(0), Vec::from_iter(70..110));
}
