//! The end of a generation with work in each state: what has not started goes back without being
//! run; what is in flight may finish until the deadline; what comes again waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane::discipline::{Coalesce, Sequence};
use keylane::source::RawMessage;
use keylane::{Context, OnExhausted, Overflow, Retry};
use keylane_testkit::reference::{Fate, MessageState};
use keylane_testkit::scenario::{MS, quiet, settle, threads};
use keylane_testkit::{Act, Evidence, Gate, LetterBox, Outcome, Script};
use tokio::time::Instant;

use crate::support::{
    REVOKE_WITHIN, Rig, adds_up, id_of, orders, plain, scripted, settings, stats_add_up, until,
};

const LONG: Duration = Duration::from_secs(24 * 3600);

/// A script in which everything fails until it is told otherwise.
fn failing(rig: &Rig) -> (Script, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&fails);
    let script = Script::new(&rig.history).choose(move |_| match still.load(Ordering::Relaxed) {
        true => Act::error(),
        false => Act::ok(),
    });
    (script, fails)
}

/// How the ends of the attempts were recorded.
fn outcomes(rig: &Rig) -> Vec<Outcome> {
    let records = rig.history.records();
    let outcomes = records.iter().filter_map(|record| match record.event {
        keylane_testkit::Event::End { outcome, .. } => Some(outcome),
        _ => None,
    });
    outcomes.collect()
}

#[tokio::test(start_paused = true)]
async fn parked() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1; 6]);
    until(|| intake.stats().held == 6).await;
    gate.arrivals(1).await;
    rig.revoke();
    until(|| intake.stats().given_back == 5).await;
    stats_add_up(&intake);
    assert_eq!(rig.history.started(), [1]);
    // In flight, and in time: it is acked before the generation is released.
    gate.open();
    let done = |standing: MessageState| standing == MessageState::Confirmed(Fate::Done);
    rig.server.until(|server| server.count(done) == 1).await;
    let report = rig.finish(&orders, intake).await;
    assert_eq!(rig.history.handled(), [1, 2, 3, 4, 5, 6]);
    assert_eq!((report.acked, report.given_back), (6, 5));
}

/// In the ready queue, because all handlers are busy.
#[tokio::test(start_paused = true)]
async fn ready() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
    let orders = orders().concurrency(1).spawn(scripted(script)).unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1, 2, 3, 4]);
    until(|| orders.stats().ready == 3).await;
    rig.revoke();
    until(|| intake.stats().given_back == 3).await;
    assert_eq!(rig.history.started(), [1]);
    gate.open();
    rig.finish(&orders, intake).await;
    assert_eq!(rig.history.handled().len(), 4);
}

/// Keyless messages wait for a handler outside of any lane.
#[tokio::test(start_paused = true)]
async fn without_a_key() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
    let orders = orders().concurrency(1).spawn(scripted(script)).unwrap();
    let intake = rig.consume(&orders);
    for id in 1..=3_u64 {
        rig.history.sending(None, id, id).ok();
        rig.server
            .publish([RawMessage::new(id.to_be_bytes().to_vec())]);
    }
    until(|| intake.stats().held == 3).await;
    gate.arrivals(1).await;
    rig.revoke();
    until(|| intake.stats().given_back == 2).await;
    gate.open();
    rig.finish(&orders, intake).await;
}

#[tokio::test(start_paused = true)]
async fn in_flight_and_dropped_at_the_deadline() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 2]);
    gate.arrivals(2).await;
    let start = Instant::now();
    rig.revoke();
    tokio::time::sleep(REVOKE_WITHIN - 10 * MS).await;
    assert_eq!(outcomes(&rig), []);
    until(|| outcomes(&rig).len() == 2).await;
    assert_eq!(outcomes(&rig), [Outcome::Dropped; 2]);
    assert!(start.elapsed() < REVOKE_WITHIN + 100 * MS);
    gate.open();
    rig.handled(2).await;
    let report = rig.finish(&orders, intake).await;
    assert_eq!((report.acked, report.given_back), (2, 2));
}

/// With no time at all an attempt is dropped at once.
#[tokio::test(start_paused = true)]
async fn in_flight_and_dropped_at_once() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let at_once = settings().revoke_within(Duration::ZERO);
    let intake = orders.consume_with(rig.server.source(), at_once).unwrap();
    rig.publish([1]);
    gate.arrivals(1).await;
    let start = Instant::now();
    rig.revoke();
    until(|| !outcomes(&rig).is_empty()).await;
    assert!(start.elapsed() < 100 * MS);
    gate.open();
    rig.finish(&orders, intake).await;
}

/// A revoke is no failure of the message: also when no attempt is left, it is not given up on.
#[tokio::test(start_paused = true)]
async fn in_flight_for_the_last_time_and_dropped() {
    for discards in [true, false] {
        let rig = Rig::new(plain());
        let gate = Gate::new();
        let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
        let letters = LetterBox::new(&rig.history);
        // Without `retry` a message is tried once.
        let orders = orders()
            .on_exhausted(match discards {
                true => OnExhausted::Discard,
                false => OnExhausted::dead_letter(letters.sink(id_of)),
            })
            .spawn(scripted(script))
            .unwrap();
        let intake = rig.consume(&orders);
        rig.publish([1]);
        gate.arrivals(1).await;
        rig.revoke();
        until(|| intake.stats().given_back == 1).await;
        gate.open();
        let report = rig.finish(&orders, intake).await;
        assert_eq!((report.acked, report.given_back), (1, 1));
        assert_eq!(rig.history.handled(), [1]);
        assert_eq!(letters.letters().len(), 0);
    }
}

/// What is lost may be elsewhere already: an attempt ends at once.
#[tokio::test(start_paused = true)]
async fn in_flight_and_lost() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 1]);
    gate.arrivals(1).await;
    let lost_at = Instant::now();
    rig.lose();
    until(|| intake.stats().given_back == 2).await;
    assert!(lost_at.elapsed() < 5 * MS, "{:?}", lost_at.elapsed());
    gate.arrivals(1).await;
    assert_eq!(rig.server.count(MessageState::is_settled), 0);
    gate.open();
    let report = rig.finish(&orders, intake).await;
    assert_eq!(rig.history.started(), [1, 1, 2]);
    assert_eq!(rig.history.handled(), [1, 2]);
    assert_eq!((report.acked, report.given_back), (2, 2));
}

/// A handler that blocks its thread cannot be dropped. The source goes on without it, and the
/// message that comes again waits for its end.
#[test]
fn in_flight_and_blocking_its_thread() {
    threads().block_on(async {
        let rig = Rig::new(plain());
        let (started, overlaps) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (open, counts) = std::sync::mpsc::channel::<()>();
        let counts = std::sync::Mutex::new(counts);
        let running = AtomicU32::new(0);
        let (starts, both) = (Arc::clone(&started), Arc::clone(&overlaps));
        let handler = move |_: Context<Bytes>, message: RawMessage| {
            if running.fetch_add(1, Ordering::SeqCst) > 0 {
                both.fetch_add(1, Ordering::SeqCst);
            }
            if starts.fetch_add(1, Ordering::SeqCst) == 0 {
                let _ = counts.lock().unwrap().recv();
            }
            running.fetch_sub(1, Ordering::SeqCst);
            let id = id_of(&message);
            async move { Ok::<_, keylane_testkit::ScriptError>(id) }
        };
        let orders = orders().spawn(handler).unwrap();
        let soon = settings().revoke_within(10 * MS);
        let intake = orders.consume_with(rig.server.source(), soon).unwrap();
        rig.publish([1]);
        while started.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(MS).await;
        }
        rig.server.revoke();
        // Released although it runs, and handed over again.
        while rig.server.counts().delivered < 2 {
            tokio::time::sleep(MS).await;
        }
        tokio::time::sleep(20 * MS).await;
        assert_eq!(started.load(Ordering::SeqCst), 1);
        open.send(()).unwrap();
        rig.server.until(|server| server.left() == 0).await;
        let report = intake.stop().await;
        adds_up(&report);
        assert_eq!(started.load(Ordering::SeqCst), 2);
        assert_eq!(overlaps.load(Ordering::SeqCst), 0);
        assert_eq!((report.acked, report.given_back), (1, 1));
        assert_eq!(rig.server.counts().stale, 0);
    });
}

#[tokio::test(start_paused = true)]
async fn backing_off() {
    let rig = Rig::new(plain());
    let (script, fails) = failing(&rig);
    let orders = orders()
        .retry(Retry::fixed(LONG).max_attempts(3))
        .spawn(scripted(script))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 2]);
    until(|| orders.stats().backing_off == 2).await;
    fails.store(false, Ordering::Relaxed);
    rig.revoke();
    rig.handled(3).await;
    let report = rig.finish(&orders, intake).await;
    assert_eq!((report.acked, report.given_back), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn halted() {
    let rig = Rig::new(plain());
    let (script, fails) = failing(&rig);
    let orders = orders().spawn(scripted(script)).unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 2]);
    until(|| orders.stats().halted == 2).await;
    fails.store(false, Ordering::Relaxed);
    rig.revoke();
    rig.handled(3).await;
    rig.finish(&orders, intake).await;
}

/// A lane that an operator has paused stays paused, and empty.
#[tokio::test(start_paused = true)]
async fn paused() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    let key = Bytes::from("1");
    orders.lane(&key).pause();
    let intake = rig.consume(&orders);
    rig.publish([1, 1]);
    until(|| intake.stats().held == 2).await;
    quiet().await;
    rig.revoke();
    until(|| intake.stats().given_back == 2).await;
    until(|| intake.stats().held == 2).await;
    assert!(rig.history.started().is_empty());
    orders.lane(&key).resume().unwrap();
    rig.finish(&orders, intake).await;
}

/// The messages of a batch that has started end together, and one that has not is taken apart.
#[tokio::test(start_paused = true)]
async fn in_a_batch() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let (script, opened) = (Script::new(&rig.history), gate.clone());
    let handler = move |batch: Vec<RawMessage>| {
        let running: Vec<_> = batch
            .iter()
            .map(|message| script.run(None, id_of(message), 1))
            .collect();
        let opened = opened.clone();
        async move {
            opened.pass().await;
            let mut ids = Vec::new();
            for run in running {
                ids.push(run.await?);
            }
            Ok::<_, keylane_testkit::ScriptError>(ids)
        }
    };
    let orders = orders()
        .concurrency(1)
        .batch(3, Duration::ZERO)
        .spawn_batches(handler)
        .unwrap();
    let intake = rig.consume(&orders);
    // The first three start, the next wait in the lane, those of key 2 wait for a handler.
    rig.publish([1, 1, 1]);
    gate.arrivals(1).await;
    let first = rig.history.started().len();
    rig.publish([1, 1, 1, 2, 2]);
    until(|| intake.stats().held == 8).await;
    rig.revoke();
    until(|| intake.stats().given_back == 8 - first as u64).await;
    assert_eq!(rig.history.started().len(), first);
    tokio::time::sleep(REVOKE_WITHIN / 2).await;
    gate.open();
    rig.server.until(|server| server.left() == 0).await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!(report.acked, 8);
    let mut handled = rig.history.handled();
    handled.sort_unstable();
    assert_eq!(handled, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(rig.server.counts().stale, 0);
}

/// A batch that is dropped at the deadline gives all of its messages back.
#[tokio::test(start_paused = true)]
async fn in_a_batch_that_is_dropped() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let opened = gate.clone();
    let handler = move |batch: Vec<RawMessage>| {
        let opened = opened.clone();
        async move {
            opened.pass().await;
            let ids = batch.iter().map(id_of).collect::<Vec<_>>();
            Ok::<_, keylane_testkit::ScriptError>(ids)
        }
    };
    let orders = orders().batch(3, 10 * MS).spawn_batches(handler).unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 1]);
    gate.arrivals(1).await;
    rig.revoke();
    until(|| intake.stats().given_back == 3).await;
    gate.open();
    rig.server.until(|server| server.left() == 0).await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!((report.acked, report.given_back), (3, 3));
}

/// Messages that stand for others are acked with them, and go back with them.
#[tokio::test(start_paused = true)]
async fn merged() {
    let merge = |waiting: &RawMessage, new: &RawMessage| {
        let mut merged = new.clone();
        merged
            .headers
            .push(("with".to_owned(), Some(waiting.payload.clone())));
        merged
    };
    let ways: [fn() -> Coalesce<RawMessage>; 2] = [Coalesce::keep_latest, Coalesce::keep_first];
    for way in ways.map(Some).into_iter().chain([None]) {
        let rig = Rig::new(plain());
        let gate = Gate::new();
        let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
        let coalesce = way.map_or_else(|| Coalesce::merge(merge), |way| way());
        let orders = orders().coalesce(coalesce).spawn(scripted(script)).unwrap();
        let intake = rig.consume(&orders);
        rig.publish([1]);
        gate.arrivals(1).await;
        rig.publish([1, 1, 1]);
        until(|| intake.stats().held == 4).await;
        quiet().await;
        assert_eq!(
            rig.server.count(MessageState::is_settled),
            0,
            "acked too early"
        );
        rig.revoke();
        until(|| intake.stats().given_back == 3).await;
        assert_eq!(rig.history.started(), [1]);
        gate.open();
        rig.server.until(|server| server.left() == 0).await;
        let report = intake.stop().await;
        adds_up(&report);
        assert_eq!((report.acked, report.given_back), (4, 3));
        let handled = rig.history.handled();
        assert!(handled.len() < 4 && handled[0] == 1, "{handled:?}");
    }
}

/// A message that was sent directly and merged with one of a source cannot be given again: it runs.
#[tokio::test(start_paused = true)]
async fn merged_with_one_that_has_no_source() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
    let orders = orders()
        .coalesce(Coalesce::merge(|_: &RawMessage, new: &RawMessage| {
            new.clone()
        }))
        .spawn(scripted(script))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1]);
    gate.arrivals(1).await;
    rig.publish([1]);
    until(|| intake.stats().held == 2).await;
    quiet().await;
    let direct = orders.submit(crate::support::message(1, 99)).await.unwrap();
    quiet().await;
    rig.revoke();
    tokio::time::sleep(100 * MS).await;
    gate.open();
    assert_eq!(direct.await.unwrap(), 99);
    rig.server.until(|server| server.left() == 0).await;
    adds_up(&intake.stop().await);
}

pub(crate) fn sequence() -> Sequence<Bytes, RawMessage> {
    Sequence::contiguous(|raw: &RawMessage| raw.version.unwrap()).from(1)
}

/// The messages of one key with these versions; the ids are the versions.
fn publish_versions(rig: &Rig, versions: impl IntoIterator<Item = u64>) {
    for version in versions {
        let mut message = crate::support::message(1, version);
        message.version = Some(version);
        rig.server.publish([message]);
    }
}

/// Early versions go back, and are early again.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_version() {
    let rig = Rig::new(plain());
    let orders = orders()
        .sequence(sequence())
        .spawn(scripted(Script::new(&rig.history)))
        .unwrap();
    let intake = rig.consume(&orders);
    publish_versions(&rig, [2, 3]);
    until(|| intake.stats().held == 2).await;
    quiet().await;
    rig.revoke();
    until(|| intake.stats().given_back == 2).await;
    until(|| intake.stats().held == 2).await;
    assert!(rig.history.started().is_empty());
    publish_versions(&rig, [1]);
    rig.server.until(|server| server.left() == 0).await;
    assert_eq!(rig.history.handled(), [1, 2, 3]);
    adds_up(&intake.stop().await);
}

/// A version that was in line when its generation ended comes again, and is no duplicate.
#[tokio::test(start_paused = true)]
async fn in_line_by_its_version() {
    for drops in [false, true] {
        let rig = Rig::new(plain());
        let gate = Gate::new();
        let orders = orders()
            .sequence(sequence())
            .spawn(scripted(
                Script::new(&rig.history).otherwise(Act::ok().waits(&gate)),
            ))
            .unwrap();
        let intake = rig.consume(&orders);
        publish_versions(&rig, [1, 2, 3, 4]);
        until(|| intake.stats().held == 4).await;
        gate.arrivals(1).await;
        rig.revoke();
        until(|| intake.stats().given_back == 3).await;
        if drops {
            tokio::time::sleep(REVOKE_WITHIN + 100 * MS).await;
        }
        gate.open();
        rig.server.until(|server| server.left() == 0).await;
        assert_eq!(rig.history.handled(), [1, 2, 3, 4], "dropped: {drops}");
        let report = intake.stop().await;
        adds_up(&report);
        assert_eq!(report.acked, 4);
    }
}

/// Version 1 is in flight, and lost; it comes again while the old attempt runs.
async fn lost_in_flight_by_its_version(rig: Rig, handler: Duration) {
    let orders = orders()
        .sequence(sequence())
        .spawn(scripted(
            Script::new(&rig.history).otherwise(Act::ok().sleeps(handler)),
        ))
        .unwrap();
    let intake = rig.consume(&orders);
    publish_versions(&rig, [1, 2]);
    until(|| intake.stats().held == 2).await;
    rig.started(1).await;
    rig.lose();
    settle().await;
    let delivered = rig.server.counts().delivered;
    assert!(delivered < 100, "{delivered} deliveries of 2 messages");
    rig.server.until(|server| server.left() == 0).await;
    let handled = rig.history.handled();
    assert!(handled == [1, 2] || handled == [1, 1, 2], "{handled:?}");
    adds_up(&intake.stop().await);
}

#[tokio::test(start_paused = true)]
async fn in_flight_by_its_version_and_lost() {
    lost_in_flight_by_its_version(Rig::new(plain()), 100 * MS).await;
}

#[tokio::test(start_paused = true)]
async fn in_flight_by_its_version_and_lost_with_nack() {
    lost_in_flight_by_its_version(Rig::new(plain().nack()), 100 * MS).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_beside_a_full_lane() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
    let orders = orders()
        .lane_capacity(2, Overflow::Wait)
        .spawn(scripted(script))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1; 4]);
    until(|| orders.stats().full_lanes == 1).await;
    rig.publish([1; 10]);
    until(|| intake.stats().aside == 10).await;
    rig.revoke();
    until(|| intake.stats().given_back == 13).await;
    stats_add_up(&intake);
    assert_eq!(rig.history.started(), [1]);
    gate.open();
    rig.finish(&orders, intake).await;
    assert_eq!(rig.history.handled(), (1..=14).collect::<Vec<_>>());
}

/// Waiting for room in the dispatcher.
#[tokio::test(start_paused = true)]
async fn waiting_for_room() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
    let orders = orders().capacity(2).spawn(scripted(script)).unwrap();
    let intake = rig.consume(&orders);
    rig.publish(0..10);
    until(|| intake.stats().held == 10).await;
    gate.arrivals(2).await;
    rig.revoke();
    until(|| intake.stats().given_back == 8).await;
    gate.open();
    rig.finish(&orders, intake).await;
}

/// A dead letter in flight may finish in time, and is dropped at the deadline.
#[tokio::test(start_paused = true)]
async fn a_letter_in_flight() {
    for in_time in [true, false] {
        let rig = Rig::new(plain());
        let gate = Gate::new();
        let letters = LetterBox::new(&rig.history).waits(&gate);
        let script = Script::new(&rig.history).message(1, Act::error());
        let orders = orders()
            .on_exhausted(OnExhausted::dead_letter(letters.sink(id_of)))
            .spawn(scripted(script))
            .unwrap();
        let intake = rig.consume(&orders);
        rig.publish([1, 1]);
        gate.arrivals(1).await;
        rig.revoke();
        if !in_time {
            tokio::time::sleep(REVOKE_WITHIN + 100 * MS).await;
        }
        gate.open();
        let report = rig.finish(&orders, intake).await;
        assert_eq!(letters.letters().len(), 1, "in time: {in_time}");
        assert_eq!((report.acked, report.dead_lettered), (1, 1));
        let tries = rig.history.started().iter().filter(|id| **id == 1).count();
        assert_eq!(tries, 1 + usize::from(!in_time));
    }
}

/// A letter that was refused waits for its next delivery: it goes back at once.
#[tokio::test(start_paused = true)]
async fn a_letter_that_was_refused() {
    let rig = Rig::new(plain());
    let letters = LetterBox::new(&rig.history).refuses(1);
    let script = Script::new(&rig.history).message(1, Act::error());
    let orders = orders()
        .on_exhausted(OnExhausted::dead_letter(letters.sink(id_of)))
        .spawn(scripted(script))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1, 1]);
    until(|| letters.refused().len() == 1).await;
    rig.revoke();
    rig.finish(&orders, intake).await;
    assert_eq!(letters.letters().len(), 1);
}

/// Only the partitions that are revoked: the others are left alone.
#[tokio::test(start_paused = true)]
async fn one_of_several_partitions() {
    let server = keylane_testkit::reference::ReferenceServer::new(plain()).partitions(4);
    let rig = Rig::of(server);
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish((0..40).map(|n| n % 20));
    until(|| intake.stats().held == 40).await;
    gate.arrivals(20).await;
    let theirs = rig.server.entries();
    let theirs: Vec<_> = theirs.iter().filter(|one| one.partition == 2).collect();
    assert!(!theirs.is_empty());
    rig.history.revoke(0);
    rig.server.revoke_partitions(&[2]);
    until(|| intake.stats().given_back == theirs.len() as u64 / 2).await;
    gate.open();
    let report = rig.finish(&orders, intake).await;
    assert_eq!(report.given_back, theirs.len() as u64 / 2);
    assert_eq!(report.acked, 40);
}

/// A revoke during a revoke, and a loss during a revoke.
#[tokio::test(start_paused = true)]
async fn twice() {
    for loses in [false, true] {
        let rig = Rig::new(plain());
        let gate = Gate::new();
        let orders = rig.spawn(Act::ok().waits(&gate));
        let intake = rig.consume(&orders);
        rig.publish([1, 1, 2]);
        gate.arrivals(2).await;
        rig.revoke();
        tokio::time::sleep(100 * MS).await;
        match loses {
            true => rig.lose(),
            false => rig.revoke(),
        }
        tokio::time::sleep(100 * MS).await;
        gate.open();
        rig.handled(3).await;
        rig.finish(&orders, intake).await;
    }
}

/// What its source recalls goes back if it has not started.
#[tokio::test(start_paused = true)]
async fn recalled() {
    let rig = Rig::new(plain().nack());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 1, 2]);
    until(|| intake.stats().held == 4).await;
    gate.arrivals(2).await;
    intake.pause();
    quiet().await;
    rig.history.revoke(0);
    // The first one is in flight, and settles as ever.
    rig.server.recall(|message| id_of(message) <= 3);
    until(|| intake.stats().nacked == 2).await;
    assert_eq!(rig.ready(), 2);
    gate.open();
    rig.handled(2).await;
    intake.resume();
    let report = rig.finish(&orders, intake).await;
    assert_eq!((report.acked, report.nacked), (4, 2));
}

/// What is released is settled: an ack that was in time is confirmed before.
#[tokio::test(start_paused = true)]
async fn acks_are_confirmed_before_the_release() {
    let rig = Rig::new(plain());
    let slow = settings().confirm_every(LONG);
    let orders = rig.spawn(Act::ok());
    let intake = orders.consume_with(rig.server.source(), slow).unwrap();
    rig.publish(0..5);
    rig.handled(5).await;
    quiet().await;
    assert_eq!(rig.server.counts().confirms, 0);
    rig.revoke();
    rig.server.until(|server| server.left() == 0).await;
    assert_eq!(rig.server.counts().confirms, 1);
    rig.judge(&orders, Evidence::new());
    adds_up(&intake.stop().await);
}
