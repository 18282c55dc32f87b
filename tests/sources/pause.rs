//! Pausing an intake, and resuming it.

use keylane::consume::IntakeState;
use keylane_testkit::scenario::{SECOND, quiet};
use keylane_testkit::{Act, Gate};

use crate::support::{Rig, plain, until};

#[tokio::test(start_paused = true)]
async fn a_paused_intake_takes_nothing_in_and_finishes_what_is_here() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 2]);
    gate.arrivals(2).await;
    intake.pause();
    until(|| intake.stats().state == IntakeState::Paused).await;
    rig.publish([1, 2, 3]);
    gate.open();
    rig.handled(2).await;
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(intake.stats().received, 2);
    assert_eq!(rig.server.left(), 3);
    intake.resume();
    rig.handled(5).await;
    assert_eq!(intake.stats().state, IntakeState::Running);
    rig.finish(&orders, intake).await;
}

/// Before the source is open, and while it is not.
#[tokio::test(start_paused = true)]
async fn a_pause_outlives_the_opening_of_the_source() {
    let rig = Rig::new(plain());
    rig.server.kill();
    let orders = rig.spawn(Act::ok());
    let intake = rig.consume(&orders);
    rig.publish([1]);
    quiet().await;
    intake.pause();
    quiet().await;
    assert_eq!(intake.stats().state, IntakeState::Opening);
    rig.server.start();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(intake.stats().state, IntakeState::Paused);
    assert_eq!(intake.stats().received, 0);
    rig.history.revoke(0);
    rig.server.kill();
    rig.server.start();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(intake.stats().state, IntakeState::Paused);
    intake.resume();
    rig.finish(&orders, intake).await;
}

/// A revoke is followed while the intake is paused, and a stop ends it.
#[tokio::test(start_paused = true)]
async fn a_paused_intake_hears_of_a_revoke_and_stops() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 1]);
    gate.arrivals(1).await;
    intake.pause();
    quiet().await;
    rig.revoke();
    until(|| intake.stats().given_back == 1).await;
    gate.open();
    rig.handled(1).await;
    let stopped = intake.stop();
    intake.pause();
    let report = stopped.await;
    crate::support::adds_up(&report);
    assert_eq!((report.acked, report.given_back), (1, 1));
    assert_eq!(intake.stats().state, IntakeState::Ended);
    assert_eq!(rig.server.left(), 1);
}
