//! Brokers that die one after the other, and connections that are cut, reset and slow, while
//! records are produced and handled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane::OnExhausted;
use keylane::source::{Deliveries, Outcome, RawMessage, Settlement, Source};
use keylane_kafka::{KafkaSource, KafkaSourceBuilder};
use keylane_testkit::scenario::{boxed, by_key};
use keylane_testkit::{Act, Gate};
use testkit_servers::Kafka;
use testkit_servers::proxy::{Direction, Proxy};
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;

use crate::loudness::logged;
use crate::rebalances::{PARTITIONS, judge, produce, settled, takes, watch};
use crate::stage::{Member, Stage, until, waiting};
use crate::support::{PATIENCE, Topic, show_log};

/// How often a member may open its source again for one fault. A member that spins exceeds it.
const RESTARTS: u64 = 10;

/// Two members handle the records of these brokers while `faults` happen.
async fn survived(
    kafka: Kafka,
    builder: fn(&Topic) -> KafkaSourceBuilder,
    faults: impl AsyncFnOnce(&Stage),
) {
    show_log();
    let stage = Stage::of(Topic::new(Arc::new(kafka), PARTITIONS).await);
    let join = || {
        let script = stage.script().choose(|cue| Act::ok().sleeps(takes(cue.id)));
        stage.member_of(builder(&stage.topic), script)
    };
    let (ends, watches) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let producer = tokio::spawn(produce(stage.clone(), Arc::clone(&ends)));
    let watcher = tokio::spawn(watch(stage.clone(), Arc::clone(&watches)));
    let members: [Member; 2] = [join(), join()];
    settled(&members).await;
    faults(&stage).await;
    ends.store(true, Ordering::Relaxed);
    producer.await.expect("no panic");
    stage.nothing_left().await;
    watches.store(true, Ordering::Relaxed);
    let committed = watcher.await.expect("what is committed is right");
    for member in members {
        let stats = member.intake.stats();
        assert!(stats.restarts <= RESTARTS, "{stats:?}");
        member.stop().await;
    }
    // A member that is silent for too long is removed from the group.
    judge(&stage, &committed, true);
}

/// Each node has a copy of the topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_brokers_die_one_after_the_other() {
    let kafka = Kafka::cluster(3).await.expect("a cluster");
    survived(kafka, Topic::builder, async |stage| {
        let kafka = &stage.topic.kafka;
        for node in 0..3 {
            let before = stage.done().len();
            kafka.kill(node).await.expect("it is killed");
            // The other nodes lead its partitions.
            stage.handled(before + 200).await;
            kafka.start_again(node).await.expect("it is there again");
            stage.handled(before + 400).await;
        }
    })
    .await;
}

fn through_proxy(topic: &Topic) -> KafkaSourceBuilder {
    topic.builder_at(topic.kafka.proxied())
}

async fn behind_proxy(fault: impl AsyncFn(&Proxy), times: usize) {
    let kafka = Kafka::start().await.expect("a broker");
    survived(kafka, through_proxy, async |stage| {
        for _ in 0..times {
            fault(stage.topic.kafka.proxy(0)).await;
            stage.handled(stage.done().len() + 100).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_connections_are_reset() {
    behind_proxy(async |proxy| proxy.reset(), 5).await;
}

/// The outage is longer than the session: the members are removed from their group, and learn of it
/// late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_connections_are_cut() {
    let cut = async |proxy: &Proxy| {
        proxy.cut();
        sleep(Duration::from_secs(4)).await;
        proxy.heal();
    };
    behind_proxy(cut, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_connections_are_slow() {
    let slow = async |proxy: &Proxy| {
        proxy.delay(Direction::ToServer, Duration::from_millis(100));
        proxy.delay(Direction::ToClient, Duration::from_millis(100));
    };
    behind_proxy(slow, 3).await;
}

/// Fails if an error of the topic, the group or the broker behind the proxy was logged.
fn no_error_is_logged(stage: &Stage) {
    let port = stage.topic.kafka.proxied().replace("127.0.0.1", "");
    for name in [&port, &stage.topic.name, &stage.topic.group] {
        let lines = logged(name);
        let errors = lines.iter().filter(|(level, _)| *level == Level::ERROR);
        assert_eq!(errors.count(), 0, "{lines:?}");
    }
}

/// The client gives a silent connection up when a request has had no answer for three seconds. By
/// default it waits for a minute.
fn impatient(topic: &Topic) -> KafkaSourceBuilder {
    through_proxy(topic).property("socket.timeout.ms", "3000")
}

/// A network drops packets without a word, and closes no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_connections_are_forgotten() {
    let kafka = Kafka::start().await.expect("a broker");
    survived(kafka, impatient, async |stage| {
        let proxy = stage.topic.kafka.proxy(0);
        for _ in 0..2 {
            let before = proxy.traffic().accepted;
            proxy.forget();
            until("they connect again", async || {
                proxy.traffic().accepted > before
            })
            .await;
            stage.handled(stage.done().len() + 100).await;
        }
        no_error_is_logged(stage);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_source_goes_on_when_its_connections_were_forgotten() {
    show_log();
    let kafka = Arc::new(Kafka::start().await.expect("a broker"));
    let stage = Stage::of(Topic::new(kafka, PARTITIONS).await);
    let member = stage.member_of(impatient(&stage.topic), stage.script());
    stage.publish(0..40).await;
    stage.handled(40).await;
    stage.nothing_left().await;
    stage.topic.kafka.proxy(0).forget();
    stage.publish(0..40).await;
    stage.handled(80).await;
    stage.nothing_left().await;
    no_error_is_logged(&stage);
    let stats = member.intake.stats();
    assert_eq!((stats.restarts, stats.last_error), (0, None));
    member.stop().await;
    judge(&stage, &BTreeMap::new(), true);
}

/// The broker has removed the member from its group meanwhile, and answers its commits with that.
/// The client has joined again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_is_away_for_longer_than_the_session_is_a_loss_of_partitions() {
    show_log();
    let kafka = Arc::new(Kafka::start().await.expect("a broker"));
    let stage = Stage::of(Topic::new(kafka, PARTITIONS).await);
    let gate = Gate::new();
    stage.publish(0..40).await;
    let builder = stage.topic.builder_at(stage.topic.kafka.proxied());
    let member = stage.member_of(builder, waiting(&stage, &gate, |id| id <= 20));
    stage.handled(20).await;
    let proxy = stage.topic.kafka.proxy(0);
    proxy.cut();
    // They are to be committed while no broker answers.
    gate.open();
    stage.handled(40).await;
    sleep(Duration::from_secs(5)).await;
    proxy.heal();
    stage.publish(0..40).await;
    stage.nothing_left().await;
    let stats = member.intake.stats();
    assert_eq!((stats.restarts, stats.last_error), (0, None));
    member.stop().await;
}

/// The records are in memory already. Those that were handed over and have settled are handled
/// again if this process dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_records_are_handed_over_far_ahead_of_the_commits() {
    let without_limit = |builder: KafkaSourceBuilder| builder.commit_overdue(Duration::MAX);
    let at_count = |builder| without_limit(builder).most_uncommitted(50);
    let in_time = |builder: KafkaSourceBuilder| builder;
    let a_while = Duration::from_millis(700);
    let all = received_without_commits(PATIENCE, without_limit).await;
    assert_eq!(all, 350);
    assert_eq!(received_without_commits(a_while, at_count).await, 0);
    assert_eq!(received_without_commits(a_while, in_time).await, 0);
}

/// Returns how many of 350 records are handed over within this time, while no commit is answered.
/// The others are handed over afterwards.
async fn received_without_commits(
    within: Duration,
    set: impl FnOnce(KafkaSourceBuilder) -> KafkaSourceBuilder,
) -> usize {
    show_log();
    let kafka = Arc::new(Kafka::start().await.expect("a broker"));
    let stage = Stage::of(Topic::new(kafka, 1).await);
    stage.publish(0..400).await;
    let builder = stage.topic.builder_at(stage.topic.kafka.proxied());
    let mut source = set(builder).build().expect("a source");
    source.open().await.expect("it is open");
    let mut first = Deliveries::new(50, Instant::now() + PATIENCE);
    while first.len() < 50 {
        source.receive(&mut first).await.expect("records");
    }
    let done = |taken: Deliveries<_, _>| {
        let mut taken = taken;
        let taken = taken.take().into_iter();
        Vec::from_iter(taken.map(|one| Settlement::new(one.position, Outcome::Done)))
    };
    let proxy = stage.topic.kafka.proxy(0);
    proxy.cut();
    source.settle(&done(first)).await.expect("a commit begins");
    sleep(Duration::from_millis(400)).await;
    let mut rest = Deliveries::new(350, Instant::now() + PATIENCE);
    let all = async |source: &mut keylane_kafka::KafkaSource, rest: &mut Deliveries<_, _>| {
        while rest.len() < 350 {
            source.receive(rest).await.expect("records");
        }
    };
    let received = timeout(within, all(&mut source, &mut rest)).await;
    let count = rest.len();
    assert_eq!(received.is_ok(), count == 350);
    proxy.heal();
    all(&mut source, &mut rest).await;
    source.settle(&done(rest)).await.expect("a commit begins");
    source.confirm().await.expect("all is committed");
    source.close().await.expect("it is closed");
    count
}

/// Nothing listens at the address. The source says so soon: not only when a broker that is reached
/// would be too slow, after ten seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_address_is_the_last_error_soon() {
    show_log();
    let orders = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: RawMessage| async { Ok(()) }))
        .expect("a dispatcher");
    // A port of this machine at which nothing listens.
    let source = KafkaSource::builder("127.0.0.1:1", "billing").topic("orders");
    let began = Instant::now();
    let intake = orders.consume(source.build().expect("a source"));
    let intake = intake.expect("an intake");
    until("the error is there", async || {
        intake.stats().last_error.is_some()
    })
    .await;
    let took = began.elapsed();
    let why = intake.stats().last_error.unwrap_or_default();
    assert!(why.contains("no broker answers at 127.0.0.1:1"), "{why}");
    println!("measured: the error came after {took:?}");
    assert!(took < Duration::from_secs(9), "{took:?}");
    intake.stop().await;
}
