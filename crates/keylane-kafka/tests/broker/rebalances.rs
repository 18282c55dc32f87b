//! Members that join, leave and are removed from their group, while records are produced. The test
//! checks the history of all of them: no record is lost, each key keeps its order and never runs at
//! two places at once, and a record that is handled twice was not committed before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane::source::{Deliveries, Outcome, Settlement, Source};
use keylane_kafka::{KafkaSourceBuilder, metadata};
use keylane_testkit::scenario::Random;
use keylane_testkit::{Act, Evidence, Gate, Rule};
use testkit_servers::Kafka;
use testkit_servers::proxy::Direction;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep};

use crate::stage::{Member, Stage, place_of, until, waiting};
use crate::support::{PATIENCE, Topic};

pub(crate) const PARTITIONS: i32 = 6;
const KEYS: u64 = 200;

/// How the group shares its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Eager,
    Cooperative,
    New,
}

/// The number of rebalances for each protocol: 20 in total by default.
pub(crate) fn rebalances() -> u64 {
    std::env::var("KEYLANE_KAFKA_REBALANCES").map_or(7, |count| count.parse().unwrap())
}

fn builder(stage: &Stage, protocol: Protocol) -> KafkaSourceBuilder {
    let topic = &stage.topic;
    // A broker that is slow for some seconds takes out no member.
    let patient = || topic.builder().property("session.timeout.ms", "30000");
    match protocol {
        Protocol::Eager => patient().property("partition.assignment.strategy", "range"),
        Protocol::Cooperative => {
            patient().property("partition.assignment.strategy", "cooperative-sticky")
        }
        Protocol::New => topic
            .builder_of_new_protocol(topic.kafka.bootstrap())
            .property("group.protocol", "consumer"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_all_partitions_move() {
    rebalanced(Protocol::Eager, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_some_partitions_move() {
    rebalanced(Protocol::Cooperative, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_the_broker_assigns() {
    rebalanced(Protocol::New, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_reordered_when_members_are_taken_out() {
    rebalanced(Protocol::Cooperative, true).await;
}

/// The member has joined again, so the broker accepts its commits, and it does not know yet that it
/// was removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_settles_of_a_lost_partition_is_not_committed_by_the_member_that_came_again() {
    let stage = Stage::new(1).await;
    stage.publish(0..20).await;
    let mut source = stage.topic.builder().build().unwrap();
    source.open().await.unwrap();
    let mut into = Deliveries::new(20, Instant::now() + PATIENCE);
    while into.len() < 20 {
        source.receive(&mut into).await.unwrap();
    }
    let positions: Vec<_> = into.take().into_iter().map(|one| one.position).collect();
    let done = |range: Range<usize>| {
        let positions = positions[range].iter();
        Vec::from_iter(positions.map(|at| Settlement::new(*at, Outcome::Done)))
    };
    source.settle(&done(0..5)).await.unwrap();
    source.confirm().await.unwrap();
    stage.committed(&[5]).await;
    taken_out(&stage).await;
    source.settle(&done(5..10)).await.unwrap();
    source.confirm().await.unwrap();
    assert_eq!(stage.topic.committed().await[0].0, Some(5));
    source.close().await.unwrap();
    assert_eq!(stage.topic.committed().await[0].0, Some(5));
}

/// How long a record takes: some take longer than the interval of the watcher.
pub(crate) fn takes(id: u64) -> Duration {
    Duration::from_millis(if id.is_multiple_of(97) { 300 } else { id % 8 })
}

/// Whether each member has partitions, and all of them together have all.
fn is_settled(members: &[Member]) -> bool {
    let has = members
        .iter()
        .map(|member| member.control.partitions())
        .collect::<Vec<_>>();
    let all: BTreeSet<_> = has.iter().flatten().map(|one| one.partition).collect();
    let count: usize = has.iter().map(Vec::len).sum();
    let is_each_there = has.iter().all(|partitions| !partitions.is_empty());
    is_each_there && all.len() == count && count == PARTITIONS as usize
}

pub(crate) async fn settled(members: &[Member]) {
    until("the partitions are shared", async || is_settled(members)).await;
}

/// All members are removed, and come again by themselves.
pub(crate) async fn taken_out(stage: &Stage) {
    let before = stage.topic.members().await;
    stage.topic.expel().await;
    until("all have come again", async || {
        let now = stage.topic.members().await;
        now.len() == before.len() && now.iter().all(|member| !before.contains(member))
    })
    .await;
}

/// Publishes records of all keys until it is stopped.
pub(crate) async fn produce(stage: Stage, ends: Arc<AtomicBool>) {
    let mut random = Random::new(7);
    while !ends.load(Ordering::Relaxed) {
        let keys = Vec::from_iter((0..100).map(|_| random.below(KEYS)));
        stage.publish(keys).await;
        sleep(Duration::from_millis(20)).await;
    }
}

/// Watches the committed places until it is stopped: they never go back, and never exceed the
/// handled records. Returns for each message after how many it was first seen to be committed.
pub(crate) async fn watch(stage: Stage, ends: Arc<AtomicBool>) -> BTreeMap<(i32, u64), usize> {
    let mut seen = BTreeMap::new();
    let mut last = vec![0; PARTITIONS as usize];
    while !ends.load(Ordering::Relaxed) {
        let committed = stage.topic.committed().await;
        // Read afterwards: it contains at least the records of the commit.
        let done = stage.done();
        let places: BTreeSet<_> = done.iter().map(place_of).collect();
        for (number, (at, text)) in (0..).zip(committed) {
            let Some(at) = at else { continue };
            let last = &mut last[number as usize];
            assert!(*last <= at, "{number} went from {last} back to {at}");
            let beyond = metadata::decode(at, &text).expect("our own metadata");
            for offset in (*last..at).chain(beyond.runs().flatten()) {
                let place = (number, offset);
                assert!(
                    places.contains(&place),
                    "{place:?} is committed, and not done"
                );
                seen.entry(place).or_insert(done.len());
            }
            *last = at;
        }
        sleep(Duration::from_millis(10)).await;
    }
    seen
}

async fn rebalanced(protocol: Protocol, expels: bool) {
    let stage = Stage::new(PARTITIONS).await;
    let join = || {
        let script = stage.script().choose(|cue| {
            let takes = Act::ok().sleeps(takes(cue.id));
            match (cue.id % 61, cue.attempt) {
                (0, 1) => Act::error(),
                _ => takes,
            }
        });
        stage.member_of(builder(&stage, protocol), script)
    };
    let ends = Arc::new(AtomicBool::new(false));
    let watches = Arc::new(AtomicBool::new(false));
    let producer = tokio::spawn(produce(stage.clone(), Arc::clone(&ends)));
    let watcher = tokio::spawn(watch(stage.clone(), Arc::clone(&watches)));
    let mut members = vec![join(), join()];
    settled(&members).await;
    let mut random = Random::new(11);
    for number in 0..rebalances() {
        let before = stage.done().len();
        match number % 3 {
            // One joins.
            0 => members.push(join()),
            1 if expels => taken_out(&stage).await,
            // One leaves, and another one joins.
            1 => {
                let goes = random.below(members.len() as u64) as usize;
                members.remove(goes).stop().await;
                members.push(join());
            }
            // One leaves.
            _ => {
                let goes = random.below(members.len() as u64) as usize;
                members.remove(goes).stop().await;
            }
        }
        settled(&members).await;
        // The group goes on after each rebalance.
        stage.handled(before + 100).await;
    }
    ends.store(true, Ordering::Relaxed);
    producer.await.unwrap();
    stage.nothing_left().await;
    watches.store(true, Ordering::Relaxed);
    let committed = watcher.await.unwrap();
    for member in members {
        let stats = member.intake.stats();
        // A member that stays in the group goes on, and is not opened again.
        assert!(expels || stats.restarts == 0, "{stats:?}");
        member.stop().await;
    }
    judge(&stage, &committed, expels);
}

pub(crate) fn judge(stage: &Stage, committed: &BTreeMap<(i32, u64), usize>, expels: bool) {
    let mut first = BTreeSet::new();
    let mut repeats = 0;
    for (number, raw) in stage.done().iter().enumerate() {
        let place = place_of(raw);
        if first.insert(place) {
            continue;
        }
        repeats += 1;
        // Including the records in flight at that time. A member that was removed may be late.
        let is_late = expels || committed.get(&place).is_none_or(|seen| number < *seen);
        assert!(is_late, "{place:?} was done again after it was committed");
    }
    let evidence = Evidence::new()
        .max_attempts(5)
        .redelivers()
        .quiescent(Instant::now());
    match stage.history.check(&evidence) {
        Ok(verdict) => {
            verdict.assert_judged(&[Rule::NoLoss, Rule::NoInvention, Rule::Order]);
            if !expels {
                verdict.assert_judged(&[Rule::Exclusion]);
            }
        }
        Err(mut broken) => {
            // A member that was removed runs beside its successor until it learns of it.
            broken.retain(|violation| !expels || violation.rule != Rule::Exclusion);
            let broken: Vec<_> = broken.iter().map(ToString::to_string).collect();
            assert!(broken.is_empty(), "{}", broken.join("\n"));
        }
    }
    println!("{} messages, {repeats} of them again", first.len());
    // A member that leaves in order commits before its partitions move.
    assert!(expels || repeats == 0);
}

/// In-flight work of a revoked partition may take its time: the others do not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_stay_go_on_while_others_are_revoked() {
    let stage = Stage::new(2).await;
    let gate = Gate::new();
    for partition in 0..2 {
        stage
            .publish_to(Some(partition), [10 + partition as u64])
            .await;
    }
    // Both partitions have a record in flight, so any revoked one has to wait.
    let first = stage.member_with(waiting(&stage, &gate, |id| id <= 2));
    until("both are in flight", async || gate.waiting() == 2).await;
    let second = stage.member();
    // Only one that stays can hand over these.
    until("the rebalance waits", async || {
        let done = stage.done().len();
        stage.publish_to(Some(0), [20]).await;
        stage.publish_to(Some(1), [21]).await;
        done > 0 && stage.topic.members().await.len() == 2
    })
    .await;
    gate.open();
    until("each has one", async || {
        let has = |member: &Member| member.control.partitions().len();
        (has(&first), has(&second)) == (1, 1)
    })
    .await;
    stage.nothing_left().await;
    second.stop().await;
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_leaves_the_group_at_once() {
    for protocol in [Protocol::Eager, Protocol::Cooperative] {
        let stage = Stage::new(2).await;
        stage.publish(0..10).await;
        let member = stage.member_of(builder(&stage, protocol), stage.script());
        stage.handled(10).await;
        assert_eq!(stage.topic.members().await.len(), 1);
        member.stop().await;
        assert_eq!(stage.topic.members().await, [""; 0]);
    }
}

/// This holds at each moment of joining, with slow answers: the other members never wait until it
/// has been silent for too long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_closed_while_it_joins_leaves() {
    let stage = Stage::of(Topic::new(Arc::new(Kafka::start().await.unwrap()), 2).await);
    let proxy = stage.topic.kafka.proxy(0);
    proxy.delay(Direction::ToClient, Duration::from_millis(500));
    let here = LocalSet::new();
    let _entered = here.enter();
    let mut all = JoinSet::new();
    for moment in 4..24 {
        let mut stage = stage.clone();
        stage.topic.group = format!("{}-{moment}", stage.topic.group);
        all.spawn_local(async move {
            let patient = |brokers| {
                let builder = stage.topic.builder_at(brokers);
                let builder = builder.property("session.timeout.ms", "300000");
                // Each answer with other metadata makes the group begin again.
                builder.property("topic.metadata.refresh.interval.ms", "60000")
            };
            let kafka = &stage.topic.kafka;
            let member = stage.member_of(patient(kafka.proxied()), stage.script());
            sleep(Duration::from_millis(200) * moment).await;
            member.stop().await;
            let next = stage.member_of(patient(kafka.bootstrap()), stage.script());
            next.has(2).await;
            next.stop().await;
        });
    }
    here.run_until(all.join_all()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_member_that_restarts_gets_its_partitions_without_a_rebalance() {
    let stage = Stage::new(4).await;
    let join = |name: &str| {
        let builder = stage.topic.builder().static_member(name);
        // Long enough for a restart.
        let builder = builder.property("session.timeout.ms", "30000");
        stage.member_of(builder, stage.script())
    };
    let numbers = |member: &Member| {
        let all = member.control.partitions();
        all.iter().map(|one| one.partition).collect::<Vec<_>>()
    };
    let (one, two) = (join("one"), join("two"));
    until("each has two", async || {
        (numbers(&one).len(), numbers(&two).len()) == (2, 2)
    })
    .await;
    let (of_one, of_two) = (numbers(&one), numbers(&two));
    one.stop().await;
    stage.publish(0..20).await;
    let members = stage.topic.members().await;
    assert_eq!(members.len(), 2, "a static member does not leave");
    let one = join("one");
    until("it has its partitions", async || numbers(&one) == of_one).await;
    stage.handled(20).await;
    assert_eq!(numbers(&two), of_two);
    stage.nothing_left().await;
    assert_eq!(two.intake.stats().given_back, 0);
    one.stop().await;
    two.stop().await;
}

/// Parallel Consumer's #843: after a revoke and an assign of the same partition a key ran on two
/// threads, the old one and a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_comes_back_does_not_overlap_with_its_past() {
    let stage = Stage::new(1).await;
    let gate = Gate::new();
    let member = stage.member_with(waiting(&stage, &gate, |_| true));
    stage.publish([1, 1]).await;
    until("one is in flight", async || gate.waiting() == 1).await;
    stage.topic.expel().await;
    until("both were handed over again", async || {
        member.intake.stats().received >= 4
    })
    .await;
    gate.open();
    stage.committed(&[2]).await;
    member.stop().await;
    let evidence = Evidence::new().redelivers();
    let broken = stage.history.check(&evidence).err().unwrap_or_default();
    assert!(broken.is_empty(), "{broken:?}");
}
