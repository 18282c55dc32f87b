//! Attempts that a source counts.

use std::sync::{Arc, Mutex};

use keylane::source::{Features, Outcome};
use keylane::{Context, Dispatcher, OnExhausted, Retry};
use keylane_testkit::scenario::{MS, SECOND, quiet, settle};
use keylane_testkit::{Act, Gate, LetterBox, Script, ScriptError};
use tokio::time::Instant;

use crate::given::Given;
use crate::support::{Rig, adds_up, id_of, message, orders, plain, scripted, until};

/// A server that counts attempts, whose only message was started so often by processes that died.
async fn crashed(times: u32) -> Rig {
    use keylane::source::{Deliveries, Source};
    let rig = Rig::new(plain().counts_attempts());
    rig.publish([1, 1]);
    for attempt in 1..=times {
        let mut source = rig.server.source();
        source.open().await.unwrap();
        let mut into = Deliveries::new(1, tokio::time::Instant::now());
        source.receive(&mut into).await.unwrap();
        let position = into.take()[0].position;
        let guard = source.start_guard().unwrap();
        guard.starts(0, &position, attempt).unwrap();
    }
    rig
}

/// Attempts of processes that died count.
#[tokio::test(start_paused = true)]
async fn attempts_of_processes_that_died_count() {
    let rig = crashed(2).await;
    let script = Script::new(&rig.history).attempt(1, 3, Act::error());
    let orders = orders()
        .retry(Retry::fixed(MS).max_attempts(4))
        .spawn(scripted(script))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.handled(2).await;
    assert_eq!(rig.history.attempts(), [(1, 3), (1, 4), (2, 1)]);
    adds_up(&intake.stop().await);
    assert_eq!(rig.server.counts().starts, 2 + 3);
}

/// A message that has ended its process as often as it may is dead-lettered without another
/// attempt, and its key goes on.
#[tokio::test(start_paused = true)]
async fn a_message_that_killed_the_process_often_enough_is_given_up() {
    for attempts in [3, 4] {
        let rig = crashed(attempts).await;
        let letters = LetterBox::new(&rig.history);
        let orders = orders()
            .retry(Retry::fixed(MS).max_attempts(3))
            .on_exhausted(OnExhausted::dead_letter(letters.sink(id_of)))
            .spawn(scripted(Script::new(&rig.history)))
            .unwrap();
        let intake = rig.consume(&orders);
        rig.handled(1).await;
        assert_eq!(rig.history.started(), [2]);
        let letter = letters.letters().remove(0);
        assert_eq!((letter.id, letter.attempts), (1, attempts));
        let report = intake.stop().await;
        adds_up(&report);
        assert_eq!((report.acked, report.dead_lettered), (1, 1));
        assert_eq!(rig.server.left(), 0);
    }
}

/// What is sent beside a counting source is not counted, and runs.
#[tokio::test(start_paused = true)]
async fn direct_messages_are_not_counted() {
    let rig = Rig::new(plain().counts_attempts());
    let orders = rig.spawn(Act::ok());
    let intake = rig.consume(&orders);
    let answer = orders.submit(message(1, 77)).await.unwrap().await;
    assert_eq!(answer.unwrap(), 77);
    assert_eq!(rig.server.counts().starts, 0);
    adds_up(&intake.stop().await);
}

/// The others of its key do not overtake a message whose attempt may not start.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_may_not_start_holds_its_key() {
    let rig = Rig::new(plain().counts_attempts().nack());
    rig.server.faults().refuse_starts(1);
    let orders = rig.spawn(Act::ok());
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 1]);
    rig.handled(3).await;
    assert_eq!(rig.history.handled(), [1, 2, 3]);
    rig.finish(&orders, intake).await;
}

/// A note takes about as long as a call of a server, so its key does not wait for long: 2 milliseconds,
/// then 4, then 8.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_being_noted_is_asked_for_soon() {
    let rig = Rig::new(plain().counts_attempts());
    rig.server.faults().note_starts_after(3);
    let orders = rig.spawn(Act::ok());
    let intake = rig.consume(&orders);
    let began = Instant::now();
    rig.publish([1; 10]);
    rig.handled(10).await;
    let took = began.elapsed();
    // A wait may end a few milliseconds late, each of 30.
    assert!(140 * MS <= took && took < 400 * MS, "{took:?}");
    assert_eq!(rig.server.counts().starts, 10);
    rig.finish(&orders, intake).await;
}

/// A guard that refuses for ever, on a source that gives again at once, leaves the rest their time.
#[tokio::test(start_paused = true)]
async fn attempts_that_may_never_start_do_not_spin() {
    let rig = Rig::new(plain().counts_attempts().nack());
    rig.server.faults().refuse_starts(usize::MAX);
    let orders = rig.spawn(Act::ok());
    let intake = rig.consume(&orders);
    rig.publish([1]);
    settle().await;
    assert!(rig.server.counts().delivered < 100);
    drop(intake);
}

/// An attempt that a revoke or a stop has dropped was not the message's fault: however often that
/// happens, the message is not given up for it.
#[tokio::test(start_paused = true)]
async fn attempts_that_we_have_dropped_do_not_count() {
    let rig = Rig::new(plain().counts_attempts());
    let gate = Gate::new();
    let script = Script::new(&rig.history).otherwise(Act::ok().waits(&gate));
    let orders = orders()
        .retry(Retry::fixed(MS).max_attempts(3))
        .spawn(scripted(script))
        .unwrap();
    let mut intake = rig.consume(&orders);
    rig.publish([1]);
    for round in 1..=5 {
        rig.started(2 * round - 1).await;
        rig.revoke();
        rig.started(2 * round).await;
        rig.history.revoke(0);
        let report = intake.stop().within(std::time::Duration::ZERO).await;
        assert_eq!((report.received, report.given_back), (2, 2));
        intake = rig.consume(&orders);
    }
    gate.open();
    rig.finish(&orders, intake).await;
    assert!(
        rig.history
            .attempts()
            .iter()
            .all(|attempt| *attempt == (1, 1))
    );
    quiet().await;
}

/// An attempt that has failed counts when its message comes again, in any life of the source.
#[tokio::test(start_paused = true)]
async fn attempts_that_have_failed_count_after_a_revoke() {
    let rig = Rig::new(plain().counts_attempts());
    let script = Script::new(&rig.history)
        .attempt(1, 1, Act::error())
        .attempt(1, 2, Act::error());
    let orders = orders()
        .retry(Retry::fixed(SECOND).max_attempts(4))
        .spawn(scripted(script))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1]);
    until(|| orders.stats().backing_off == 1).await;
    rig.revoke();
    rig.started(2).await;
    until(|| orders.stats().backing_off == 1).await;
    rig.history.revoke(0);
    adds_up(&intake.stop().within(std::time::Duration::ZERO).await);
    let intake = rig.consume(&orders);
    rig.finish(&orders, intake).await;
    assert_eq!(rig.history.attempts(), [(1, 1), (1, 2), (1, 3)]);
}

/// In a batch each message has its own count: one that has ended its process before is not told as
/// new because it runs together with a new one.
#[tokio::test(start_paused = true)]
async fn attempts_before_a_batch_count_for_each_message() {
    let rig = Rig::new(plain().counts_attempts());
    rig.publish([1, 1]);
    for attempt in 1..=2 {
        use keylane::source::{Deliveries, Source};
        let mut source = rig.server.source();
        source.open().await.unwrap();
        let mut into = Deliveries::new(2, tokio::time::Instant::now());
        source.receive(&mut into).await.unwrap();
        let position = into.take()[1].position;
        let guard = source.start_guard().unwrap();
        guard.starts(0, &position, attempt).unwrap();
    }
    let gate = Gate::new();
    let opened = gate.clone();
    let handler = move |batch: Vec<keylane::source::RawMessage>| {
        let opened = opened.clone();
        async move {
            opened.pass().await;
            Ok::<_, keylane_testkit::ScriptError>(batch.iter().map(id_of).collect::<Vec<_>>())
        }
    };
    let orders = orders()
        .retry(Retry::fixed(MS).max_attempts(9))
        .batch(2, SECOND)
        .spawn_batches(handler)
        .unwrap();
    let intake = rig.consume(&orders);
    gate.arrivals(1).await;
    let attempts: Vec<u32> = rig
        .server
        .entries()
        .iter()
        .map(|entry| entry.attempts)
        .collect();
    assert_eq!(attempts, [1, 3]);
    gate.open();
    rig.server.until(|server| server.left() == 0).await;
    adds_up(&intake.stop().await);
}

/// A server that counts what it hands over, and not what starts, needs no guard: its count stands.
#[tokio::test(start_paused = true)]
async fn the_count_of_a_source_without_a_guard_stands() {
    let counts = Features::new().counts_attempts();
    for (features, first) in [(counts, 3), (Features::new(), 1)] {
        let (source, told) = Given::new(features, [(1, 2), (2, 3), (3, 0)]);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let starts = Arc::clone(&seen);
        let items = Dispatcher::builder(|_: &u64| 7_u64)
            .retry(Retry::fixed(MS).max_attempts(3))
            .on_exhausted(OnExhausted::Discard)
            .spawn(move |context: Context<u64>, id: u64| {
                starts.lock().unwrap().push((id, context.attempt()));
                async { Ok::<(), ScriptError>(()) }
            })
            .unwrap();
        let intake = items.consume(source).unwrap();
        until(|| told.settled().len() == 3).await;
        let seen = seen.lock().unwrap().clone();
        if first == 3 {
            assert_eq!(seen, [(1, 3), (3, 1)]);
            assert_eq!(told.outcome(2), Some(Outcome::Discarded));
        } else {
            assert_eq!(seen, [(1, 1), (2, 1), (3, 1)]);
        }
        adds_up(&intake.stop().await);
    }
}
