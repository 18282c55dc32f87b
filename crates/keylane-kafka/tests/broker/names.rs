//! Names that two processes share, and names of topics that do not exist.

use std::error::Error as _;

use keylane::consume::IntakeState;
use keylane::source::{Deliveries, Outcome, RawMessage, Settlement, Source, SourceError};
use keylane_kafka::KafkaSourceError::NameTaken;
use keylane_kafka::{KafkaSource, KafkaSourceBuilder, KafkaSourceError};
use tokio::time::Instant;

use crate::loudness::logged;
use crate::stage::{Member, Stage, until};
use crate::support::{PATIENCE, Topic, shared, show_log};

/// How often a member fails before it counts as one that waits.
const FAILURES: usize = 4;

fn name_taken(error: &SourceError) -> &KafkaSourceError {
    let source = error.source().expect("a reason");
    source.downcast_ref().expect("an error of this crate")
}

/// Receives until the source fails.
async fn failure(source: &mut KafkaSource) -> SourceError {
    loop {
        let mut into = Deliveries::<RawMessage, _>::new(1, Instant::now() + PATIENCE);
        if let Err(error) = source.receive(&mut into).await {
            return error;
        }
    }
}

/// Whether a member of this group waits for the name.
fn waits(member: &Member, group: &str) -> bool {
    let stats = member.intake.stats();
    let error = stats.last_error.unwrap_or_default();
    let logged = logged(&format!("of the group `{group}` has the name `one`"));
    stats.state == IntakeState::Opening
        && error.contains("`static_member`")
        && logged.len() >= FAILURES
}

/// Otherwise the two would take the partitions from each other again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_members_with_one_name_the_first_one_waits_until_the_name_is_free() {
    let stage = Stage::new(2).await;
    let builder = || stage.topic.builder().static_member("one");
    let join = || stage.member_of(builder(), stage.script());
    let first = join();
    first.has(2).await;
    let other = stage.topic.builder().static_member("one-2");
    let other = stage.member_of(other, stage.script());
    other.has(1).await;
    let second = join();
    let group = &stage.topic.group;
    until("the first one waits", async || waits(&first, group)).await;
    second.has(1).await;
    stage.publish(0..20).await;
    stage.nothing_left().await;
    for member in [&second, &other] {
        assert_eq!(member.intake.stats().restarts, 0);
    }
    // The name is free when its session has ended.
    second.stop().await;
    first.has(1).await;
    stage.publish(0..20).await;
    stage.nothing_left().await;
    first.stop().await;
    other.stop().await;

    let mut first = builder().build().expect("a source");
    let control = first.control();
    let fails = tokio::spawn(async move {
        first.open().await.expect("it joins");
        let error = failure(&mut first).await;
        (first, error)
    });
    until("it has joined", async || !control.partitions().is_empty()).await;
    let second = join();
    let (mut first, error) = fails.await.expect("no panic");
    let expected = KafkaSourceError::NameTaken {
        group: stage.topic.group.clone(),
        name: "one".to_owned(),
    };
    assert_eq!(name_taken(&error), &expected);
    let error = first.open().await.expect_err("it is taken");
    assert_eq!(name_taken(&error), &expected);
    first.close().await.expect("it is closed");
    second.stop().await;
}

/// The source fails at its commit, before it has heard that its name is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_commits_under_a_name_that_is_taken_waits_too() {
    let stage = Stage::new(1).await;
    let builder = || stage.topic.builder().static_member("one");
    stage.publish([1]).await;
    let mut first = builder().build().expect("a source");
    first.open().await.expect("it joins");
    let mut into = Deliveries::new(1, Instant::now() + PATIENCE);
    while into.is_empty() {
        first.receive(&mut into).await.expect("a record");
    }
    let done = into.take().remove(0).position;
    let second = stage.member_of(builder(), stage.script());
    second.has(1).await;
    let done = Settlement::new(done, Outcome::Done);
    first.settle(&[done]).await.expect("a commit begins");
    first.confirm().await.expect_err("it is refused");
    let error = first.open().await.expect_err("the name is taken");
    let NameTaken { name, .. } = name_taken(&error) else {
        panic!("{error}");
    };
    assert_eq!(name, "one");
    first.close().await.expect("it is closed");
    stage.nothing_left().await;
    assert_eq!(second.intake.stats().restarts, 0);
    second.stop().await;
}

/// The brokers refuse the second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_members_with_one_name_the_second_one_waits_in_the_new_protocol() {
    let stage = Stage::new(2).await;
    let join = || {
        let brokers = stage.topic.kafka.bootstrap();
        let builder = stage.topic.builder_of_new_protocol(brokers);
        let builder = builder.property("group.protocol", "consumer");
        stage.member_of(builder.static_member("one"), stage.script())
    };
    let first = join();
    first.has(2).await;
    let second = join();
    let group = &stage.topic.group;
    until("the second one waits", async || waits(&second, group)).await;
    stage.publish(0..20).await;
    stage.nothing_left().await;
    assert_eq!(first.intake.stats().restarts, 0);
    first.stop().await;
    second.has(2).await;
    stage.publish(0..20).await;
    stage.nothing_left().await;
    second.stop().await;
}

/// It is in the state until it exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_does_not_exist_is_in_the_state_and_holds_up_no_other() {
    show_log();
    let stage = Stage::new(1).await;
    let brokers = stage.topic.kafka.bootstrap();
    let classic: fn(&Topic, String) -> KafkaSourceBuilder = Topic::builder_at;
    let new = |topic: &Topic, brokers| {
        let builder = topic.builder_of_new_protocol(brokers);
        builder.property("group.protocol", "consumer")
    };
    for builder in [classic, new] {
        let missing = Topic::unmade(shared().await, 1);
        let builder = builder(&stage.topic, brokers.clone()).topic(&missing.name);
        let member = stage.member_of(builder, stage.script());
        let failed = || member.intake.stats().failed_parts;
        until("the topic is missed", async || !failed().is_empty()).await;
        let [part] = &failed()[..] else {
            panic!("{:?}", failed());
        };
        let why = KafkaSourceError::NoTopic {
            topic: missing.name.clone(),
        };
        assert_eq!((&part.part, &part.why), (&missing.name, &why.to_string()));
        stage.publish(0..10).await;
        stage.nothing_left().await;
        missing.create(&[]).await;
        until("it is there", async || failed().is_empty()).await;
        member.has(2).await;
        let stats = member.intake.stats();
        assert_eq!((stats.state, stats.restarts), (IntakeState::Running, 0));
        member.stop().await;
    }
}
