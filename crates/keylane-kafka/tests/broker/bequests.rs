//! Partitions that move to another member while letters of them are on their way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane::OnExhausted;
use keylane::consume::IntakeReport;
use keylane_kafka::metadata;
use keylane_testkit::scenario::Random;
use keylane_testkit::{Act, Gate, Id, Script};
use tokio::time::sleep;

use crate::rebalances::{PARTITIONS, produce, rebalances, settled, takes};
use crate::stage::{Member, Stage, id_of, place_of, until};
use crate::support::Topic;

/// The attempts of a handler.
const ATTEMPTS: u32 = 5;

/// A member that leaves its letters in this topic.
fn member(stage: &Stage, letters: &Topic, script: Script) -> Member {
    // A broker that is slow for some seconds takes out no member.
    let builder = stage
        .topic
        .builder()
        .property("session.timeout.ms", "30000");
    let source = builder.dead_letters(&letters.name).build();
    let source = source.expect("a source");
    let control = source.control();
    let consumer = stage.consumer_that(OnExhausted::AtSource, script);
    Member::new(source, control, consumer)
}

/// Returns the number of letters of each record.
async fn kept(letters: &Topic) -> BTreeMap<Id, u64> {
    let mut kept = BTreeMap::new();
    for letter in letters.records().await {
        *kept.entry(id_of(&letter).expect("an id")).or_default() += 1;
    }
    kept
}

/// Returns the places that are committed as done.
async fn committed(stage: &Stage) -> BTreeSet<(i32, u64)> {
    let committed = stage.topic.committed().await;
    let places = (0..).zip(committed).flat_map(|(number, (at, text))| {
        let at = at.unwrap_or_default();
        let beyond = metadata::decode(at, &text).expect("our own metadata");
        let offsets: Vec<_> = (0..at).chain(beyond.runs().flatten()).collect();
        offsets.into_iter().map(move |offset| (number, offset))
    });
    places.collect()
}

/// The number of records of each of two partitions.
const EACH: u64 = 20;

/// Whether this is the first record of its partition: it waits, and holds the frontier there.
fn waits(id: Id) -> bool {
    id % EACH == 1
}

fn fails(id: Id) -> bool {
    id.is_multiple_of(4)
}

/// The ids of a partition.
fn ids_of(partition: i32) -> impl Iterator<Item = Id> {
    let first = partition.cast_unsigned() as u64 * EACH;
    first + 1..=first + EACH
}

/// Waits until all failing records of these have failed this often in full.
async fn given_up(stage: &Stage, ids: impl Iterator<Item = Id>, times: usize) {
    let ids = Vec::from_iter(ids.filter(|id| fails(*id)));
    until("their attempts are over", async || {
        let attempts = stage.history.attempts();
        let last = |id: &&Id| {
            attempts
                .iter()
                .filter(|one| **one == (**id, ATTEMPTS))
                .count()
        };
        ids.iter().all(|id| last(&id) == times)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_on_their_way_are_written_though_their_partition_goes() {
    let stage = Stage::new(2).await;
    // It does not exist yet, so letters are on their way until it does.
    let mut letters = stage.topic.clone();
    letters.name += ".dead";
    for partition in 0..2 {
        let ids = stage.publish_to(Some(partition), ids_of(partition)).await;
        assert!(ids_of(partition).eq(ids), "a key for each of the ids");
    }
    let all = || ids_of(0).chain(ids_of(1));
    let gate = Gate::new();
    let join = || {
        let gate = gate.clone();
        let script = stage.script().choose(move |cue| match cue.id {
            id if waits(id) => Act::ok().waits(&gate),
            id if fails(id) => Act::error(),
            _ => Act::ok(),
        });
        member(&stage, &letters, script)
    };
    let places = |holds: fn(Id) -> bool| {
        let numbers = (0..2).flat_map(move |number| ids_of(number).map(move |id| (number, id)));
        let held = numbers.filter(move |(_, id)| holds(*id));
        BTreeSet::from_iter(held.map(|(number, id)| (number, (id - 1) % EACH)))
    };
    let first = join();
    given_up(&stage, all(), 1).await;
    let done = places(|id| !waits(id) && !fails(id));
    until("the others are committed", async || {
        committed(&stage).await == done
    })
    .await;

    // One of the partitions moves, with its letters on their way.
    let second = join();
    until("each has one", async || {
        let has = |member: &Member| member.control.partitions().len();
        (has(&first), has(&second)) == (1, 1)
    })
    .await;
    let gone = second.control.partitions()[0].partition;
    given_up(&stage, ids_of(gone), 2).await;
    given_up(&stage, ids_of(1 - gone), 1).await;
    assert_eq!(
        stage.done().len(),
        done.len(),
        "what is done is not done again"
    );

    letters.create(&[]).await;
    let done = places(|id| !waits(id));
    until("the letters are committed", async || {
        committed(&stage).await == done
    })
    .await;
    let kept_of = kept(&letters).await;
    let expected = BTreeSet::from_iter(all().filter(|id| fails(*id)));
    assert!(kept_of.keys().eq(&expected), "{kept_of:?}");
    for id in expected {
        let of_gone = ids_of(gone).any(|other| other == id);
        let most = if of_gone { 2 } else { 1 };
        assert!(kept_of[&id] <= most, "{kept_of:?}");
    }

    // Both partitions move to another member, which handles only the records that are not done.
    let started = stage.history.started().len();
    let mut reports = vec![second.stop().await, first.stop().await];
    let third = join();
    until("both wait", async || {
        let new = stage.history.started().split_off(started);
        [1, EACH + 1].iter().all(|id| new.contains(id))
    })
    .await;
    gate.open();
    stage.committed(&[EACH, EACH]).await;
    reports.push(third.stop().await);
    let new = stage.history.started().split_off(started);
    assert!(new.into_iter().all(waits), "a letter is handled again");
    // Each record is settled once, by one of the three.
    let sum = |of: fn(&IntakeReport) -> u64| reports.iter().map(of).sum::<u64>();
    assert_eq!((sum(|of| of.acked), sum(|of| of.dead_lettered)), (30, 10));
    assert_eq!(sum(|of| of.nacked), 0);
    assert_eq!(stage.done().len(), 30);
}

/// One record in seven fails each time.
fn is_hopeless(id: Id) -> bool {
    id.is_multiple_of(7)
}

/// Watches the committed places until it is stopped. Returns at least how many attempts had begun
/// when each record was first seen to be committed.
async fn watch(stage: Stage, ends: Arc<AtomicBool>) -> BTreeMap<(i32, u64), usize> {
    let mut seen = BTreeMap::new();
    while !ends.load(Ordering::Relaxed) {
        let committed = committed(&stage).await;
        let started = stage.history.started().len();
        for place in committed {
            seen.entry(place).or_insert(started);
        }
        sleep(Duration::from_millis(10)).await;
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_are_kept_while_members_come_and_go() {
    let stage = Stage::new(PARTITIONS).await;
    let letters = stage.topic.beside(".dead", &[]).await;
    let join = || {
        let script = stage.script().choose(|cue| match is_hopeless(cue.id) {
            true => Act::error(),
            // Some records of these keys wait, and hold the frontier, while others pass.
            false if cue.key.is_some_and(|key| key < 8) => {
                Act::ok().sleeps(Duration::from_millis(400))
            }
            false => Act::ok().sleeps(takes(cue.id)),
        });
        member(&stage, &letters, script)
    };
    let (ends, watches) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let producer = tokio::spawn(produce(stage.clone(), Arc::clone(&ends)));
    let watcher = tokio::spawn(watch(stage.clone(), Arc::clone(&watches)));
    let (mut members, mut reports) = (vec![join(), join()], Vec::new());
    settled(&members).await;
    let mut random = Random::new(13);
    for number in 0..rebalances() {
        let before = stage.done().len();
        if number % 2 == 1 {
            let goes = random.below(members.len() as u64) as usize;
            reports.push(members.remove(goes).stop().await);
        } else {
            members.push(join());
        }
        settled(&members).await;
        stage.handled(before + 100).await;
    }
    ends.store(true, Ordering::Relaxed);
    producer.await.unwrap();
    stage.nothing_left().await;
    watches.store(true, Ordering::Relaxed);
    let seen = watcher.await.unwrap();
    for member in members {
        reports.push(member.stop().await);
    }

    let records = stage.topic.records().await;
    let places: BTreeMap<_, _> = records
        .iter()
        .map(|raw| (id_of(raw).unwrap(), place_of(raw)))
        .collect();
    for (number, id) in stage.history.started().iter().enumerate() {
        let committed = seen.get(&places[id]);
        let is_late = committed.is_some_and(|started| *started <= number);
        assert!(!is_late, "{id} was handled again after it was committed");
    }
    let (hopeless, others): (BTreeSet<Id>, BTreeSet<Id>) =
        places.keys().partition(|id| is_hopeless(**id));
    let done: Vec<_> = stage.done().iter().filter_map(id_of).collect();
    assert_eq!(BTreeSet::from_iter(done.iter().copied()), others);
    assert_eq!(done.len(), others.len(), "done twice");
    let kept = kept(&letters).await;
    assert!(
        kept.keys().eq(&hopeless),
        "a letter is missing, or one is too many"
    );
    let again = kept.values().sum::<u64>() - kept.len() as u64;
    println!("{} letters, {again} of them again", kept.len());
    // Each record is settled once, by one of the members.
    let sum = |of: fn(&IntakeReport) -> u64| reports.iter().map(of).sum::<u64>();
    let settled = (sum(|of| of.acked), sum(|of| of.dead_lettered));
    assert_eq!(settled, (others.len() as u64, hopeless.len() as u64));
}
