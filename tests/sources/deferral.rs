//! Messages beside full lanes of which only the position is kept, and which are read again.

use keylane::Overflow;
use keylane::consume::{Guarantee, Intake};
use keylane::source::Features;
use keylane_testkit::reference::Call;
use keylane_testkit::scenario::{MS, SECOND, quiet};
use keylane_testkit::{Act, Evidence, Gate, Script};

use crate::support::{
    Orders, Rig, adds_up, id_of, orders, plain, scripted, settings, stats_add_up, until,
};

/// Messages of a full lane that are always kept.
const KEPT: usize = 64;

fn readable() -> Features {
    plain().random_access()
}

/// Lanes of ten; key 1 waits at the gate.
fn with_hot_key(rig: &Rig, gate: &Gate) -> Orders {
    let script = Script::new(&rig.history).key(1, Act::ok().waits(gate));
    orders()
        .lane_capacity(10, Overflow::Wait)
        .spawn(scripted(script))
        .unwrap()
}

fn consume(rig: &Rig, orders: &Orders, held: usize, deferred: usize) -> Intake {
    let settings = settings().held(held).deferred(deferred);
    orders.consume_with(rig.server.source(), settings).unwrap()
}

/// Has so many messages of key 1 wait, all but the first ones deferred.
async fn defer(rig: &Rig, orders: &Orders, intake: &Intake, count: usize) {
    rig.publish(vec![1; 20]);
    until(|| orders.stats().full_lanes == 1).await;
    rig.publish(vec![1; count]);
    until(|| intake.stats().held >= count).await;
}

/// A hot key with far more messages than may be held: the others go on, and all of its messages are
/// handled, in order.
#[tokio::test(start_paused = true)]
async fn a_hot_key_leaves_the_others_their_room() {
    let rig = Rig::new(readable());
    let gate = Gate::new();
    let orders = with_hot_key(&rig, &gate);
    let intake = consume(&rig, &orders, 200, 10_000);
    defer(&rig, &orders, &intake, 5_000).await;
    let stats = intake.stats();
    assert!(stats.held - stats.deferred <= 200, "{stats:?}");
    assert!(stats.deferred >= 5_000 - KEPT, "{stats:?}");
    let others = rig.publish((0..500).map(|n| 2 + n % 50));
    until(|| rig.history.handled().len() == others.len()).await;
    stats_add_up(&intake);
    gate.open();
    let report = rig.finish(&orders, intake).await;
    assert_eq!(report.acked, 5_520);
}

/// What is read again is not more than its lane takes, whatever is done with the lane meanwhile.
#[tokio::test(start_paused = true)]
async fn a_lane_stays_within_its_capacity() {
    for capacity in [1, 3, 10, 300] {
        let rig = Rig::new(readable());
        let gate = Gate::new();
        let script = Script::new(&rig.history).key(1, Act::ok().waits(&gate).sleeps(MS));
        let orders = orders()
            .lane_capacity(capacity, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let intake = consume(&rig, &orders, 5_000, 10_000);
        rig.publish(vec![1; 3 * capacity]);
        until(|| orders.stats().full_lanes == 1).await;
        rig.publish(vec![1; 300]);
        until(|| intake.stats().aside >= 300).await;
        gate.open();
        while rig.server.left() > 0 {
            let ids = rig.history.handled();
            assert!(ids.is_sorted(), "{ids:?}");
            let stats = intake.stats();
            let inside = stats.held - stats.aside;
            let first = 3 * capacity;
            assert!(inside <= first + capacity, "{inside} of {capacity}");
            if ids.len() > first {
                assert!(inside <= capacity + 1, "{inside} of {capacity}");
            }
            tokio::time::sleep(MS).await;
        }
        rig.finish(&orders, intake).await;
    }
}

/// A revoke gives deferred messages back, and they come again.
#[tokio::test(start_paused = true)]
async fn deferred_messages_are_given_back() {
    for loses in [false, true] {
        let rig = Rig::new(readable());
        let gate = Gate::new();
        let orders = with_hot_key(&rig, &gate);
        let intake = consume(&rig, &orders, 200, 10_000);
        defer(&rig, &orders, &intake, 1_000).await;
        match loses {
            true => rig.lose(),
            false => rig.revoke(),
        }
        until(|| intake.stats().given_back >= 1_019).await;
        assert_eq!(rig.history.started()[..1], [1]);
        gate.open();
        rig.finish(&orders, intake).await;
        assert_eq!(intake_started_in_order(&rig), 1_020);
    }
}

fn intake_started_in_order(rig: &Rig) -> usize {
    let mut handled = rig.history.handled();
    assert!(handled.is_sorted(), "{handled:?}");
    handled.dedup();
    handled.len()
}

/// A stop with a deadline gives deferred messages back; one without handles them.
#[tokio::test(start_paused = true)]
async fn a_stop_with_deferred_messages() {
    let rig = Rig::new(readable());
    let gate = Gate::new();
    let orders = with_hot_key(&rig, &gate);
    let intake = consume(&rig, &orders, 200, 10_000);
    defer(&rig, &orders, &intake, 1_000).await;
    let report = intake.stop().within(SECOND).await;
    adds_up(&report);
    assert_eq!((report.received, report.given_back), (1_020, 1_020));
    rig.history.revoke(0);
    let intake = consume(&rig, &orders, 200, 10_000);
    until(|| intake.stats().held >= 1_020).await;
    gate.open();
    let report = intake.stop().within(std::time::Duration::MAX).await;
    adds_up(&report);
    assert_eq!((report.received, report.acked), (1_020, 1_020));
    rig.judge(&orders, Evidence::new());
}

/// With the limit of deferred messages reached, messages are kept again, in the order of their key.
#[tokio::test(start_paused = true)]
async fn more_than_may_be_deferred() {
    let rig = Rig::new(readable());
    let gate = Gate::new();
    let orders = with_hot_key(&rig, &gate);
    let intake = consume(&rig, &orders, 300, 100);
    rig.publish(vec![1; 20]);
    until(|| orders.stats().full_lanes == 1).await;
    rig.publish(vec![1; 2_000]);
    until(|| intake.stats().held == 400).await;
    quiet().await;
    let stats = intake.stats();
    assert_eq!((stats.held, stats.deferred), (400, 100));
    gate.open();
    let report = rig.finish(&orders, intake).await;
    assert_eq!(report.acked, 2_020);
}

/// What is not there any more when it is read again goes back, and the others go on.
#[tokio::test(start_paused = true)]
async fn deferred_messages_that_are_gone() {
    let rig = Rig::new(readable());
    let gate = Gate::new();
    let orders = with_hot_key(&rig, &gate);
    let intake = consume(&rig, &orders, 200, 10_000);
    defer(&rig, &orders, &intake, 1_000).await;
    let is_gone = |id: u64| id > 300 && (id.is_multiple_of(3) || (400..600).contains(&id));
    rig.server.faults().forget(|raw| is_gone(id_of(raw)));
    gate.open();
    let expected: Vec<u64> = (1..=1_020).filter(|id| !is_gone(*id)).collect();
    rig.handled(expected.len()).await;
    assert_eq!(rig.history.handled(), expected);
    until(|| intake.stats().held == 0).await;
    stats_add_up(&intake);
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!(report.nacked + report.given_back, 1_020 - report.acked);
    assert_eq!(report.acked, expected.len() as u64);
}

/// A failure while messages are read again opens the source again, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn a_read_that_fails() {
    for panics in [false, true] {
        let rig = Rig::new(readable());
        let gate = Gate::new();
        let orders = with_hot_key(&rig, &gate);
        let intake = consume(&rig, &orders, 200, 10_000);
        defer(&rig, &orders, &intake, 1_000).await;
        match panics {
            true => rig.server.faults().panic_in(Call::Reread, 1),
            false => rig.server.faults().fail(Call::Reread, 1),
        }
        gate.open();
        rig.handled(30).await;
        rig.history.revoke(0);
        until(|| intake.stats().restarts == 1).await;
        rig.history.revoke(0);
        rig.server.until(|server| server.left() == 0).await;
        adds_up(&intake.stop().await);
        assert_eq!(intake_started_in_order(&rig), 1_020);
    }
}

/// Nothing is deferred where it cannot be: without random access, in lanes that sequence, at most
/// once, and with a limit of zero.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_deferred_is_kept() {
    let cases = [
        (plain(), settings(), false),
        (readable(), settings(), true),
        (
            readable(),
            settings().guarantee(Guarantee::AtMostOnce),
            false,
        ),
        (readable(), settings().deferred(0), false),
    ];
    for (features, settings, sequences) in cases {
        let rig = Rig::new(features);
        let gate = Gate::new();
        let script = Script::new(&rig.history).key(1, Act::ok().waits(&gate));
        let orders = orders().lane_capacity(10, Overflow::Wait);
        let orders = match sequences {
            true => orders.sequence(crate::revoke::sequence()),
            false => orders,
        };
        let orders = orders.spawn(scripted(script)).unwrap();
        let intake = orders
            .consume_with(rig.server.source(), settings.held(300))
            .unwrap();
        rig.publish(vec![1; 20]);
        until(|| orders.stats().full_lanes == 1).await;
        rig.publish(vec![1; 1_000]);
        until(|| intake.stats().aside > 200).await;
        quiet().await;
        assert_eq!(intake.stats().deferred, 0);
        gate.open();
        // A stop does not wait for handlers whose messages were acked before.
        rig.handled(1_020).await;
        rig.finish(&orders, intake).await;
    }
}
