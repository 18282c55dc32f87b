//! Every way in which an intake ends: its report adds up, and what was not handled comes again.

use std::future::IntoFuture;
use std::time::Duration;

use keylane::Overflow;
use keylane::consume::IntakeState;
use keylane_testkit::reference::MessageState;
use keylane_testkit::scenario::{MS, SECOND, paused, quiet, within};
use keylane_testkit::{Act, Gate, Script};
use tokio::time::{Instant, timeout};

use crate::support::{
    REVOKE_WITHIN, Rig, adds_up, orders, plain, scripted, settings, stats_add_up, until,
};

/// A stop waits for what is here, and for its acks.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_what_is_here() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok().sleeps(SECOND));
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 1, 2]);
    rig.started(2).await;
    let (one, other) = tokio::join!(intake.stop().into_future(), intake.stop().into_future());
    assert_eq!(one, other);
    adds_up(&one);
    assert_eq!((one.received, one.acked), (4, 4));
    assert_eq!(rig.server.left(), 0);
    assert_eq!(intake.stop().await, one);
    assert_eq!(intake.ended().await, one);
    assert_eq!(intake.stats().state, IntakeState::Ended);
    // The dispatcher goes on.
    orders.send(crate::support::message(9, 99)).await.unwrap();
    rig.handled(5).await;
}

/// A stop at once hands back what has not started, and drops what is in flight after its time.
#[tokio::test(start_paused = true)]
async fn a_stop_at_once_hands_back() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 1, 2]);
    gate.arrivals(2).await;
    let start = Instant::now();
    let report = within(intake.stop().within(Duration::ZERO).into_future()).await;
    assert!(start.elapsed() <= REVOKE_WITHIN + 100 * MS);
    adds_up(&report);
    assert_eq!((report.received, report.given_back), (4, 4));
    assert_eq!((rig.server.left(), rig.server.held()), (4, 0));
    rig.history.revoke(0);
    gate.open();
    let intake = rig.consume(&orders);
    rig.finish(&orders, intake).await;
}

/// The earliest of several deadlines counts.
#[tokio::test(start_paused = true)]
async fn a_second_stop_may_be_in_more_of_a_hurry() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 1]);
    gate.arrivals(1).await;
    let mut patient = Box::pin(intake.stop().within(Duration::MAX).into_future());
    assert!(timeout(60 * SECOND, &mut patient).await.is_err());
    let start = Instant::now();
    let hasty = intake.stop().within(SECOND).await;
    assert!(start.elapsed() <= SECOND + REVOKE_WITHIN + 100 * MS);
    assert_eq!(patient.await, hasty);
    adds_up(&hasty);
    assert_eq!(hasty.given_back, 2);
}

/// Halted and paused lanes do not hold a stop up for ever.
#[tokio::test(start_paused = true)]
async fn a_halted_lane_does_not_hold_a_stop_up() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::error());
    let intake = rig.consume(&orders);
    orders.lane(&"2".into()).pause();
    rig.publish([1, 1, 2]);
    until(|| orders.stats().halted == 1 && intake.stats().held == 3).await;
    let report = within(intake.stop().into_future()).await;
    adds_up(&report);
    assert_eq!(report.given_back, 3);
    assert_eq!(rig.ready(), 3);
}

/// A dropped handle stops the intake.
#[tokio::test(start_paused = true)]
async fn a_dropped_intake_stops() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 1]);
    gate.arrivals(1).await;
    drop(intake);
    quiet().await;
    rig.publish([3]);
    gate.open();
    rig.handled(2).await;
    rig.server.until(|server| server.left() == 1).await;
    assert_eq!(rig.server.counts().delivered, 2);
}

/// A finite source: the intake ends by itself.
#[tokio::test(start_paused = true)]
async fn a_source_that_comes_to_its_end() {
    let rig = Rig::new(plain().finite());
    let orders = rig.spawn(Act::ok().sleeps(MS));
    rig.publish((0..50).map(|n| n % 7));
    rig.server.end();
    let few = settings().held(3);
    let intake = orders.consume_with(rig.server.source(), few).unwrap();
    let report = within(intake.ended()).await;
    adds_up(&report);
    assert_eq!((report.acked, report.received), (50, 50));
    // And at once, if there is nothing.
    let empty = Rig::new(plain().finite());
    empty.server.end();
    let intake = orders.consume(empty.server.source()).unwrap();
    assert_eq!(within(intake.ended()).await.received, 0);
}

/// A stop while the source is not open, and while it does not answer.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_source_that_is_not_there() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    rig.server.kill();
    let intake = rig.consume(&orders);
    tokio::time::sleep(30 * SECOND).await;
    let start = Instant::now();
    let report = intake.stop().await;
    adds_up(&report);
    assert!(start.elapsed() <= MS);
    rig.server.start();
    rig.server.faults().be_slow(9 * SECOND);
    let intake = rig.consume(&orders);
    quiet().await;
    let start = Instant::now();
    adds_up(&intake.stop().await);
    assert!(start.elapsed() <= MS);
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Drain,
    Close,
    Abort,
}

/// The dispatcher ends while it has an intake: with work in flight, parked, beside a full lane and
/// without room.
#[tokio::test(start_paused = true)]
async fn the_dispatcher_ends_first() {
    for end in [End::Drain, End::Close, End::Abort] {
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
        rig.publish([1, 1, 1, 2]);
        until(|| intake.stats().held == 8).await;
        let ending = async {
            match end {
                End::Drain => orders.drain().await,
                End::Close => orders.close().await,
                End::Abort => orders.abort().await,
            }
        };
        let opening = async {
            quiet().await;
            gate.open();
        };
        let (report, ()) = tokio::join!(within(ending), opening);
        let intake = within(intake.ended()).await;
        adds_up(&intake);
        assert_eq!(intake.received, 8, "{end:?}");
        let handled = rig.history.handled().len() as u64;
        assert_eq!(intake.acked, handled, "{end:?}: {intake}");
        assert_eq!(report.done, handled, "{end:?}");
        match end {
            End::Drain => assert!(handled >= 2, "{handled}"),
            End::Close => assert_eq!(handled, 2),
            End::Abort => assert_eq!(handled, 0),
        }
        // What was not handled comes again.
        let settled = rig.server.count(MessageState::is_settled) as u64;
        assert_eq!(settled, handled, "{end:?}");
        assert_eq!(rig.ready() as u64, 8 - handled, "{end:?}");
    }
}

/// The dispatcher is closed while the source is being opened.
#[tokio::test(start_paused = true)]
async fn the_dispatcher_ends_while_the_source_is_not_open() {
    let rig = Rig::new(plain());
    rig.server.kill();
    let orders = rig.spawn(Act::ok());
    let intake = rig.consume(&orders);
    tokio::time::sleep(30 * SECOND).await;
    within(orders.drain().into_future()).await;
    let report = within(intake.ended()).await;
    adds_up(&report);
}

/// The runtime is dropped, before or after the first message has settled: the report adds up.
#[test]
fn the_runtime_ends_first() {
    for handled in [0, 1] {
        let rig = Rig::new(plain());
        let gate = Gate::new();
        let runtime = paused();
        let (orders, intake) = runtime.block_on(async {
            let orders = rig.spawn(Act::ok().waits(&gate));
            let intake = rig.consume(&orders);
            rig.publish([1, 1, 2, 3]);
            gate.arrivals(3).await;
            gate.release(handled);
            rig.handled(handled).await;
            quiet().await;
            stats_add_up(&intake);
            (orders, intake)
        });
        drop(runtime);
        let other = paused();
        let report = other.block_on(intake.ended());
        adds_up(&report);
        assert_eq!(report.received, 4);
        assert_eq!(report.acked + report.given_back, 4);
        drop((orders, intake));
    }
}

/// A generation that ends while the intake stops is let go, and what is sent beyond the room then
/// goes back.
#[tokio::test(start_paused = true)]
async fn a_revoke_during_a_stop() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 2]);
    gate.arrivals(2).await;
    let mut stop = Box::pin(intake.stop().within(Duration::MAX).into_future());
    assert!(timeout(10 * SECOND, &mut stop).await.is_err());
    rig.server.faults().hand_over_beyond_room(2);
    rig.publish([3, 3]);
    rig.revoke();
    let start = Instant::now();
    let report = stop.await;
    assert!(
        start.elapsed() <= REVOKE_WITHIN + SECOND,
        "{:?}",
        start.elapsed()
    );
    adds_up(&report);
    assert_eq!(report.acked, 0);
    assert_eq!(rig.history.started().len(), 2);
    assert_eq!((rig.server.left(), rig.server.held()), (5, 0));
}

/// A repeat waits until its version is known. If that has halted, it holds neither a stop up nor the
/// end of the dispatcher, and does not run in its place.
#[tokio::test(start_paused = true)]
async fn a_repeat_of_a_halted_version_does_not_hold_an_end_up() {
    for end in [None, Some(End::Drain), Some(End::Close), Some(End::Abort)] {
        let rig = Rig::new(plain());
        rig.server.faults().hand_over_twice(1);
        let script = Script::new(&rig.history).otherwise(Act::error());
        let orders = orders()
            .sequence(crate::revoke::sequence())
            .spawn(scripted(script))
            .unwrap();
        let intake = rig.consume(&orders);
        rig.publish([1, 1]);
        until(|| orders.stats().halted == 1 && intake.stats().held == 3).await;
        // It is looked at again some times.
        tokio::time::sleep(SECOND).await;
        let report = match end {
            None => within(intake.stop().into_future()).await,
            Some(end) => {
                within(async {
                    match end {
                        End::Drain => orders.drain().await,
                        End::Close => orders.close().await,
                        End::Abort => orders.abort().await,
                    }
                })
                .await;
                within(intake.ended()).await
            }
        };
        adds_up(&report);
        assert_eq!((report.received, report.acked), (3, 0), "{end:?}");
        assert_eq!(rig.history.started().len(), 1, "{end:?}");
    }
}
