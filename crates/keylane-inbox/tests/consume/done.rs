//! How the store hears of what is done: until it is written, before the end, and not of what an
//! earlier opening has handed over.

use std::sync::atomic::Ordering;
use std::time::Duration;

use keylane::source::{Deliveries, Outcome, Settlement, Source};
use keylane_inbox::{InboxPosition, InboxSource};
use keylane_testkit::{Act, Evidence};
use tokio::time::Instant;

use crate::hindered::Hindered;
use crate::support::{MS, Rig, adds_up, orders, scripted, settings};

/// A disk that fails for a while: what is done is said again, and is not handled again.
#[tokio::test]
async fn a_write_that_fails_is_said_again() {
    let mut rig = Rig::new().await;
    let store = Hindered::in_front_of(&mut rig);
    let script = rig.script().otherwise(Act::ok());
    let orders = orders().spawn(scripted(script)).unwrap();
    store.failing.store(3, Ordering::SeqCst);
    rig.accept([1, 1, 2]).await;
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    rig.nothing_waits().await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!((report.received, report.acked), (3, 3));
    assert_eq!(store.failing.load(Ordering::SeqCst), 0);
    rig.judge(Evidence::new());
}

/// S7: a report that says `acked` is about what the disk has.
#[tokio::test]
async fn a_stop_waits_until_it_is_written() {
    let mut rig = Rig::new().await;
    let store = Hindered::in_front_of(&mut rig);
    let script = rig.script().otherwise(Act::ok());
    let orders = orders().spawn(scripted(script)).unwrap();
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    store.settlements.shut();
    rig.accept([1]).await;
    store.settlements.arrivals(1).await;
    let mut stop = std::pin::pin!(async { intake.stop().await });
    let early = tokio::time::timeout(100 * MS, &mut stop).await;
    assert!(early.is_err(), "the disk does not have it: {early:?}");
    store.settlements.open();
    let report = stop.await;
    adds_up(&report);
    assert_eq!(report.acked, 1);
    assert_eq!(rig.inbox.stats().await.unwrap().waiting, 0);
}

/// A mark that stays would count an attempt at a letter that is redriven.
#[tokio::test]
async fn what_is_done_leaves_no_start_mark() {
    let mut rig = Rig::new().await;
    let script = rig.script().otherwise(Act::ok());
    let orders = orders().spawn(scripted(script)).unwrap();
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    rig.accept([1, 2, 3, 1, 2, 3]).await;
    rig.nothing_waits().await;
    assert_eq!(rig.start_marks(), 0);
    adds_up(&intake.stop().await);
}

async fn received(source: &mut InboxSource) -> Vec<InboxPosition> {
    let until = Instant::now() + Duration::from_secs(20);
    let mut deliveries = Deliveries::new(100, until);
    source.receive(&mut deliveries).await.unwrap();
    let positions = deliveries.take().into_iter();
    positions.map(|delivery| delivery.position).collect()
}

async fn settle(source: &mut InboxSource, positions: &[InboxPosition], outcome: Outcome) {
    let settled = positions.iter().cloned();
    let settled = settled.map(|position| Settlement::new(position, outcome));
    source.settle(&Vec::from_iter(settled)).await.unwrap();
    source.confirm().await.unwrap();
}

/// S3: what a source has handed over before it was opened again settles without it. Neither is it
/// removed, nor does it come back twice.
#[tokio::test]
async fn what_an_earlier_opening_has_handed_over_changes_nothing() {
    for outcome in [Outcome::Done, Outcome::DeadLettered, Outcome::returned(1)] {
        let mut rig = Rig::new().await;
        rig.accept([1, 1, 2]).await;
        let mut source = rig.inbox.source();
        source.open().await.unwrap();
        let stale = received(&mut source).await;
        source.open().await.unwrap();
        let live = received(&mut source).await;
        let sequences = live.iter().map(|position| position.sequence);
        assert_eq!(Vec::from_iter(sequences), [1, 2, 3]);
        settle(&mut source, &stale, outcome).await;
        assert_eq!(rig.inbox.stats().await.unwrap().waiting, 3, "{outcome:?}");
        let soon = Instant::now() + 20 * MS;
        let mut again = Deliveries::new(100, soon);
        source.receive(&mut again).await.unwrap();
        assert_eq!(again.len(), 0, "{outcome:?}: they are handed over already");
        settle(&mut source, &live, Outcome::Done).await;
        assert_eq!(rig.inbox.stats().await.unwrap().waiting, 0);
    }
}
