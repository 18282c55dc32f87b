//! Whether a source can be consumed, and why not.

use keylane::watching::{Health, HealthLimits, HealthReason};
use keylane_testkit::Act;
use keylane_testkit::scenario::{SECOND, within};

use crate::support::{Rig, plain, until};

#[tokio::test(start_paused = true)]
async fn a_source_is_ready_when_it_is_open_and_its_server_is_not_away_for_long() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    rig.server.shut_down();
    let intake = rig.consume(&orders);
    // It was never open: not ready from the start.
    until(|| intake.stats().failures > 1).await;
    let health = intake.health();
    assert!(!health.ready && health.live, "{health}");
    let [HealthReason::SourceUnopened { source, error, .. }] = &health.reasons[..] else {
        panic!("{health}");
    };
    assert_eq!(source, "reference");
    assert!(error.is_some(), "{health}");

    rig.server.start();
    until(|| intake.health().ready).await;
    rig.publish([1, 2]);
    rig.handled(2).await;
    until(|| intake.stats().failing_since.is_none()).await;

    // Away for a moment, and for long.
    rig.server.shut_down();
    let failed = intake.stats().failures;
    until(|| intake.stats().failures > failed).await;
    assert!(intake.health().ready, "{}", intake.health());
    let strict = HealthLimits::new().failing(SECOND);
    tokio::time::sleep(2 * SECOND).await;
    assert!(!intake.health_within(&strict).ready);
    assert!(intake.health().ready, "{}", intake.health());
    tokio::time::sleep(29 * SECOND).await;
    let health = intake.health();
    assert!(!health.ready && health.live, "{health}");
    let [HealthReason::SourceFailing { lasted, .. }] = &health.reasons[..] else {
        panic!("{health}");
    };
    assert!((31 * SECOND..33 * SECOND).contains(lasted), "{health}");
    assert_eq!(
        Health::of([orders.health(), intake.watch().health()]),
        intake.health()
    );

    rig.server.start();
    until(|| intake.health().ready).await;
    intake.pause();
    until(|| intake.stats().state == keylane::consume::IntakeState::Paused).await;
    assert!(intake.health().ready, "an operator knows");
    let watch = intake.watch();
    let _ = within(async { intake.stop().await }).await;
    let health = watch.health();
    assert!(!health.ready && health.live, "{health}");
    assert!(matches!(
        health.reasons[..],
        [HealthReason::SourceStopped { .. }]
    ));
}

/// Acks that the source was told are unconfirmed until it says so.
#[tokio::test(start_paused = true)]
async fn acks_are_unconfirmed_until_the_source_confirms_them() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    let intake = rig.consume(&orders);
    rig.publish([1, 2, 3]);
    rig.handled(3).await;
    until(|| intake.stats().acked == 3).await;
    let stats = intake.stats();
    assert_eq!((stats.unconfirmed, stats.opened), (3, 1));
    tokio::time::sleep(2 * SECOND).await;
    let stats = intake.stats();
    assert_eq!((stats.acked, stats.unconfirmed), (3, 0));
    rig.finish(&orders, intake).await;
}
