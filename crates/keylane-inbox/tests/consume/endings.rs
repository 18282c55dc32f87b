//! The end of an intake, and a second one.

use std::time::Duration;

use keylane::Retry;
use keylane::source::{Deliveries, Outcome, Source};
use keylane_testkit::{Act, Evidence, Gate};

use crate::support::{MS, Rig, adds_up, orders, scripted, settings, until};

#[tokio::test]
async fn what_was_not_handled_comes_again() {
    let mut rig = Rig::new().await;
    let gate = Gate::new();
    let script = rig.script().choose({
        let gate = gate.clone();
        move |cue| match cue.id {
            1..=10 => Act::ok(),
            _ => Act::ok().waits(&gate),
        }
    });
    let orders = orders().spawn(scripted(script)).unwrap();
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    rig.accept((0..200).map(|n| n % 10)).await;
    rig.started(20).await;
    until(|| intake.stats().held == 190).await;
    let report = intake.stop().within(20 * MS).await;
    adds_up(&report);
    assert_eq!((report.received, report.acked), (200, 10));
    assert_eq!(report.nacked + report.given_back, 190);
    rig.history.revoke(0);
    drop(orders);
    rig.reopen().await;
    assert_eq!(rig.inbox.stats().await.unwrap().waiting, 190);

    gate.open();
    let script = rig.script().otherwise(Act::ok());
    let orders = crate::support::orders().spawn(scripted(script)).unwrap();
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    rig.nothing_waits().await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!(report.acked, 190);
    rig.judge(Evidence::new());
}

/// A message that goes back between two attempts has one left in the next process, and not two.
#[tokio::test]
async fn an_attempt_before_the_end_counts_after_it() {
    let mut rig = Rig::new().await;
    rig.accept([1]).await;
    let script = rig.script().otherwise(Act::error());
    let hour = Duration::from_secs(3_600);
    let patient = orders().retry(Retry::fixed(hour).max_attempts(2));
    let patient = patient.spawn(scripted(script.clone())).unwrap();
    let intake = patient
        .consume_with(rig.inbox.source(), settings())
        .unwrap();
    until(|| patient.stats().backing_off == 1).await;
    let report = intake.stop().within(Duration::ZERO).await;
    adds_up(&report);
    assert_eq!(report.given_back, 1);
    drop((patient, intake));
    rig.reopen().await;

    let orders = orders().spawn(scripted(script)).unwrap();
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    assert_eq!(rig.history.attempts(), [(1, 1), (1, 2)]);
    let letters = rig.inbox.letters().list(0, 10).await.unwrap();
    assert_eq!(letters[0].attempts, 2);
}

#[tokio::test]
async fn a_second_source_is_refused_while_one_is_consumed() {
    let mut rig = Rig::new().await;
    let orders = orders()
        .spawn(scripted(rig.script().otherwise(Act::ok())))
        .unwrap();
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    let refused = orders.consume_with(rig.inbox.source(), settings());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("already consumed"), "{refused}");
    rig.accept([1, 2, 3]).await;
    rig.handled(3).await;
    adds_up(&intake.stop().await);
    // The driver lets the source go at its end, which is a moment after its report.
    let mut again = None;
    until(|| {
        again = orders.consume_with(rig.inbox.source(), settings()).ok();
        again.is_some()
    })
    .await;
    rig.accept([1]).await;
    rig.handled(4).await;
    adds_up(&again.unwrap().stop().await);
    rig.judge(Evidence::new());
}

/// Accepts go on while the intake stops: every message is handled once, now or later.
#[tokio::test]
async fn a_stop_while_messages_come_loses_nothing() {
    let mut rig = Rig::new().await;
    let script = rig.script().otherwise(Act::ok().yields(2));
    let orders = orders().spawn(scripted(script)).unwrap();
    for _ in 0..10 {
        let mut intake = None;
        until(|| {
            intake = orders.consume_with(rig.inbox.source(), settings()).ok();
            intake.is_some()
        })
        .await;
        let intake = intake.unwrap();
        rig.accept((0..40).map(|n| n % 7)).await;
        let (report, _) = tokio::join!(
            async { intake.stop().within(Duration::ZERO).await },
            rig.accept((0..40).map(|n| n % 7)),
        );
        adds_up(&report);
        rig.history.revoke(0);
    }
    let mut intake = None;
    until(|| {
        intake = orders.consume_with(rig.inbox.source(), settings()).ok();
        intake.is_some()
    })
    .await;
    rig.nothing_waits().await;
    adds_up(&intake.unwrap().stop().await);
    rig.judge(Evidence::new());
}

/// A source that is opened again while an attempt runs on hands its message over with the attempts
/// that have failed before, and they are not forgotten.
#[tokio::test]
async fn attempts_that_have_failed_count_when_the_source_is_opened_again() {
    let mut rig = Rig::new().await;
    rig.accept([1]).await;
    let mut source = rig.inbox.source();
    let guard = source.start_guard().unwrap();
    let mut positions = Vec::new();
    for opening in 0..3 {
        source.open().await.unwrap();
        let mut into = Deliveries::new(1, tokio::time::Instant::now() + 1_000 * MS);
        while into.is_empty() {
            source.receive(&mut into).await.unwrap();
        }
        let delivery = into.take().remove(0);
        let before = if opening == 0 { 0 } else { 2 };
        assert_eq!(delivery.attempts, before, "opening {opening}");
        positions.push(delivery.position);
        if opening == 0 {
            for attempt in 1..=3 {
                guard.starts(0, &positions[0], attempt).unwrap();
            }
        }
    }
    // The second was never started; the first is dropped at last, and the third starts.
    guard.settles(1, &positions[1], Outcome::returned(2));
    guard.settles(0, &positions[0], Outcome::returned(2));
    guard.starts(2, &positions[2], 3).unwrap();
    drop(source);
    rig.reopen().await;
    let script = rig.script().otherwise(Act::ok());
    let orders = orders()
        .retry(keylane::Retry::fixed(MS).max_attempts(9))
        .spawn(scripted(script))
        .unwrap();
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    assert_eq!(rig.history.attempts(), [(1, 4)]);
}
