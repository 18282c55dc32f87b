//! Sources that fail in any of their calls, and are opened again.

use std::time::Duration;

use keylane::consume::IntakeState;
use keylane::source::{Deliveries, Features, Received, Settlement, Source, SourceError};
use keylane::{Dispatcher, OnExhausted};
use keylane_testkit::reference::{Call, Loss};
use keylane_testkit::scenario::{MS, SECOND, quiet};
use keylane_testkit::{Act, Gate, ScriptError};
use tokio::time::Instant;

use crate::support::{Rig, adds_up, plain, settings, stats_add_up, until};

/// An error or a panic in each call: the source is opened again, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn an_error_or_a_panic_in_each_call() {
    let calls = [
        Call::Open,
        Call::Receive,
        Call::Settle,
        Call::Confirm,
        Call::Release,
        Call::Extend,
    ];
    for call in calls {
        for panics in [false, true] {
            let rig = Rig::new(plain().lease(5 * SECOND));
            let orders = rig.spawn(Act::ok().sleeps(20 * MS));
            match panics {
                true => rig.server.faults().panic_in(call, 1),
                false => rig.server.faults().fail(call, 1),
            }
            let intake = rig.consume(&orders);
            rig.publish([1, 1, 2, 2, 3]);
            rig.started(1).await;
            rig.revoke();
            // A fault can come at any moment.
            for _ in 0..100 {
                rig.history.revoke(0);
                tokio::time::sleep(20 * MS).await;
            }
            let report = rig.finish(&orders, intake).await;
            let restarts = u64::from(call != Call::Open);
            assert_eq!(report.restarts, restarts, "{call:?}, panics: {panics}");
            // What was acked, and not confirmed because of the fault, is not counted as acked.
            assert!(report.acked <= 5 && report.received >= 5, "{report}");
        }
    }
}

/// A close that fails, panics or takes for ever does not hold up the end.
#[tokio::test(start_paused = true)]
async fn a_close_that_fails() {
    for fault in 0..3 {
        let rig = Rig::new(plain());
        let orders = rig.spawn(Act::ok());
        let intake = rig.consume(&orders);
        rig.publish([1]);
        rig.server.until(|server| server.left() == 0).await;
        match fault {
            0 => rig.server.faults().fail(Call::Close, 1),
            1 => rig.server.faults().panic_in(Call::Close, 1),
            _ => rig.server.faults().be_slow(3600 * SECOND),
        }
        let start = Instant::now();
        let report = intake.stop().await;
        adds_up(&report);
        assert!(start.elapsed() <= 20 * SECOND, "{:?}", start.elapsed());
    }
}

/// Acks that were lost on the way are not in the report as acks, and their messages come again.
#[tokio::test(start_paused = true)]
async fn acks_that_are_lost() {
    for loss in [Loss::Silent, Loss::Told] {
        let rig = Rig::new(plain());
        let orders = rig.spawn(Act::ok());
        rig.server.faults().lose_settles(1, loss);
        let intake = rig.consume(&orders);
        rig.publish([1, 2, 3]);
        rig.handled(3).await;
        rig.history.revoke(0);
        let report = rig.finish(&orders, intake).await;
        assert_eq!((report.acked, report.restarts), (3, 1), "{loss:?}");
        assert_eq!(report.given_back, report.received - 3);
    }
}

/// The last confirmation fails: what it was about is not reported as acked.
#[tokio::test(start_paused = true)]
async fn a_last_confirmation_that_fails() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    let late = settings().confirm_every(3600 * SECOND);
    let intake = orders.consume_with(rig.server.source(), late).unwrap();
    rig.publish([1, 2, 3]);
    rig.handled(3).await;
    quiet().await;
    rig.server.faults().lose_confirms(9, Loss::Told);
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!((report.acked, report.given_back), (0, 3));
}

/// A server that is down is tried again and again, with pauses that grow up to their limit.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_for_long() {
    let rig = Rig::new(plain());
    rig.server.kill();
    let orders = rig.spawn(Act::ok());
    let patient = settings().longest_pause(2 * SECOND);
    let intake = orders.consume_with(rig.server.source(), patient).unwrap();
    rig.publish([1, 2]);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(intake.stats().state, IntakeState::Opening);
    let error = intake.stats().last_error.expect("it has failed");
    assert!(error.contains("down"), "{error}");
    rig.server.start();
    let start = Instant::now();
    rig.handled(2).await;
    assert!(start.elapsed() <= 2 * SECOND + 10 * MS);
    rig.finish(&orders, intake).await;
}

/// The server dies with work in flight and parked: old attempts end before what comes again starts.
#[tokio::test(start_paused = true)]
async fn a_server_that_dies_with_work_here() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 2]);
    gate.arrivals(2).await;
    rig.history.revoke(0);
    rig.server.kill();
    until(|| intake.stats().state == IntakeState::Opening).await;
    stats_add_up(&intake);
    rig.server.start();
    until(|| intake.stats().restarts == 1 && intake.stats().state == IntakeState::Running).await;
    gate.release(2);
    until(|| intake.stats().stale == 2).await;
    gate.open();
    rig.handled(5).await;
    let report = rig.finish(&orders, intake).await;
    assert_eq!((report.acked, report.received), (3, 6));
}

/// A stall in `receive` is found by the watchdog; so is one in any other call.
#[tokio::test(start_paused = true)]
async fn a_source_that_stalls() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    let intake = rig.consume(&orders);
    rig.publish([1]);
    rig.server.until(|server| server.left() == 0).await;
    let start = Instant::now();
    rig.server.stall();
    rig.publish([1, 2]);
    rig.handled(3).await;
    let lasted = start.elapsed();
    assert!(lasted <= 11 * SECOND, "{lasted:?}");
    assert_eq!(intake.stats().restarts, 1);
    rig.finish(&orders, intake).await;

    // In a call about acks.
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1]);
    gate.arrivals(1).await;
    rig.server.stall();
    gate.open();
    rig.history.revoke(0);
    rig.handled(2).await;
    let report = rig.finish(&orders, intake).await;
    assert_eq!((report.acked, report.restarts), (1, 1));
}

/// Says of one of its parts that it fails, and hears nothing of the others.
struct OneFails;

impl Source for OneFails {
    type Message = u64;
    type Position = u64;

    fn features(&self) -> Features {
        Features::new()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<u64, u64>,
    ) -> Result<Received<u64>, SourceError> {
        tokio::time::sleep(SECOND).await;
        into.part_failed("orders/1", "it has no leader");
        Ok(Received::Messages)
    }

    async fn settle(&mut self, _: &[Settlement<u64>]) -> Result<(), SourceError> {
        Ok(())
    }
}

/// A part that fails does not hide that nothing is heard of the others.
#[tokio::test(start_paused = true)]
async fn a_source_that_stalls_while_one_of_its_parts_fails() {
    let orders = Dispatcher::builder(|id: &u64| *id)
        .on_exhausted(OnExhausted::Halt)
        .spawn(async |_| Ok::<_, ScriptError>(()))
        .unwrap();
    let intake = orders.consume_with(OneFails, settings()).unwrap();
    tokio::time::sleep(9 * SECOND).await;
    let stats = intake.stats();
    assert_eq!((stats.restarts, stats.failed_parts.len()), (0, 1));
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(intake.stats().restarts, 1);
    intake.stop().await;
}

/// A source that has nothing to say, says so, and is left alone for hours.
#[tokio::test(start_paused = true)]
async fn a_quiet_source_is_no_stall() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let one = settings().held(1);
    let intake = orders.consume_with(rig.server.source(), one).unwrap();
    tokio::time::sleep(3600 * SECOND).await;
    rig.publish([1, 2]);
    gate.arrivals(1).await;
    // No room.
    tokio::time::sleep(3600 * SECOND).await;
    intake.pause();
    tokio::time::sleep(3600 * SECOND).await;
    intake.resume();
    gate.open();
    let report = rig.finish(&orders, intake).await;
    assert_eq!(report.restarts, 0);
}

/// Each call is slow, and none too slow.
#[tokio::test(start_paused = true)]
async fn a_slow_source_is_no_stall() {
    let rig = Rig::new(plain());
    rig.server.faults().be_slow(Duration::from_secs(8));
    let orders = rig.spawn(Act::ok());
    let intake = rig.consume(&orders);
    rig.publish((0..30).map(|n| n % 3));
    let report = rig.finish(&orders, intake).await;
    assert_eq!((report.acked, report.restarts), (30, 0));
}

/// The lease of what is held is extended for as long as it is here, also while the intake stops.
#[tokio::test(start_paused = true)]
async fn leases_are_extended_until_the_end() {
    let rig = Rig::new(plain().lease(3 * SECOND));
    let orders = rig.spawn(Act::ok().sleeps(20 * SECOND));
    let intake = rig.consume(&orders);
    rig.publish([1, 1]);
    tokio::time::sleep(10 * SECOND).await;
    let report = intake.stop().within(60 * SECOND).await;
    adds_up(&report);
    assert_eq!((report.acked, report.received), (2, 2));
    assert_eq!(rig.server.left(), 0);
    assert_eq!(rig.server.counts().delivered, 2);

    // And what is revoked and in flight.
    let rig = Rig::new(plain().lease(3 * SECOND));
    let orders = rig.spawn(Act::ok().sleeps(20 * SECOND));
    let late = settings().revoke_within(60 * SECOND);
    let intake = orders.consume_with(rig.server.source(), late).unwrap();
    rig.publish([1]);
    rig.started(1).await;
    rig.revoke();
    let report = rig.finish(&orders, intake).await;
    assert_eq!((report.acked, report.received), (1, 1));
}

/// For how long the messages are held is known while the source extends that, and not after.
#[tokio::test(start_paused = true)]
async fn the_hold_of_messages_is_shown_as_it_is_extended() {
    let lease = 3 * SECOND;
    let rig = Rig::new(plain().lease(lease));
    let orders = rig.spawn(Act::ok().sleeps(60 * SECOND));
    let intake = rig.consume(&orders);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(intake.stats().hold, None, "nothing is held");
    rig.publish([1]);
    for _ in 0..10 {
        tokio::time::sleep(2 * SECOND).await;
        let hold = intake.stats().hold.expect("it is extended");
        assert_eq!(hold.lasts, lease);
        let left = hold.until.saturating_duration_since(Instant::now());
        assert!(left > SECOND && left <= lease, "{left:?}");
    }
    // The call takes longer than the lease: what was extended before runs out.
    rig.server.faults().be_slow(10 * SECOND);
    let before = intake.stats().hold.expect("it was extended").until;
    tokio::time::sleep(5 * SECOND).await;
    let hold = intake.stats().hold.expect("it was extended");
    assert!(hold.until <= before + SECOND, "{hold:?} after {before:?}");
    assert!(hold.until < Instant::now());
    // It has come again by now, so the history is not judged.
    rig.server.faults().none();
    let watch = intake.watch();
    adds_up(&intake.stop().within(Duration::ZERO).await);
    assert_eq!(watch.stats().hold, None);
}

/// Once nothing is held, no hold runs out.
#[tokio::test(start_paused = true)]
async fn no_hold_is_shown_after_the_last_message() {
    let rig = Rig::new(plain().lease(3 * SECOND));
    let orders = rig.spawn(Act::ok().sleeps(5 * SECOND));
    let intake = rig.consume(&orders);
    for _ in 0..2 {
        rig.publish([1]);
        tokio::time::sleep(4 * SECOND).await;
        assert!(intake.stats().hold.is_some(), "it is extended");
        for _ in 0..60 {
            tokio::time::sleep(SECOND / 2).await;
            let hold = intake.stats().hold;
            assert!(
                hold.is_none_or(|hold| hold.until > Instant::now()),
                "{hold:?}"
            );
        }
        assert_eq!(intake.stats().hold, None);
    }
    rig.finish(&orders, intake).await;
}

/// A source that opens and fails at once is opened after pauses that grow.
#[tokio::test(start_paused = true)]
async fn a_source_that_fails_again_and_again_is_opened_ever_later() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    rig.server.faults().fail(Call::Receive, usize::MAX);
    let settings = settings().longest_pause(5 * SECOND);
    let intake = orders.consume_with(rig.server.source(), settings).unwrap();
    tokio::time::sleep(60 * SECOND).await;
    // 0.1, 0.2, 0.4, 0.8, 1.6 and 3.2 seconds, then every 5.
    let restarts = intake.stats().restarts;
    assert!((15..=20).contains(&restarts), "{restarts}");
    // Once it is well, it is opened soon again.
    rig.server.faults().none();
    rig.publish([1]);
    rig.server.until(|server| server.left() == 0).await;
    tokio::time::sleep(10 * SECOND).await;
    rig.server.faults().fail(Call::Receive, 1);
    let start = Instant::now();
    rig.publish([1, 2]);
    rig.server.until(|server| server.left() == 0).await;
    // With the second after which acks are confirmed.
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
    adds_up(&intake.stop().await);
}

/// Commands, and the end of the dispatcher, while a source is being opened.
#[tokio::test(start_paused = true)]
async fn an_open_that_hangs() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    rig.server.faults().be_slow(8 * SECOND);
    let intake = rig.consume(&orders);
    tokio::time::sleep(5 * SECOND).await;
    // It is not opened from the beginning.
    intake.pause();
    intake.resume();
    until(|| intake.stats().state == IntakeState::Running).await;
    rig.server.faults().be_slow(9 * SECOND);
    let other = Rig::new(plain());
    other.server.faults().be_slow(9 * SECOND);
    drop(intake);
    let intake = other.consume(&orders);
    let start = Instant::now();
    let (report, _) = tokio::join!(orders.drain(), intake.ended());
    assert_eq!(report.accepted, 0);
    assert!(start.elapsed() <= 30 * SECOND, "{:?}", start.elapsed());
}
