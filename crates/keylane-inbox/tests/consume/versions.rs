//! Messages with versions: the sequencer of the engine decides, and the inbox keeps.

use std::time::Duration;

use keylane::consume::{Guarantee, Intake};
use keylane::discipline::{OnGap, Sequence};
use keylane::error::ConsumeError;
use keylane_inbox::{Inbox, SourceSettings};
use keylane_testkit::Act;

use crate::support::{MS, Orders, Rig, adds_up, message, orders, scripted, settings, until};

/// Version `n` of key 1 is the message `n`.
fn version(n: u64) -> keylane_inbox::NewMessage {
    message(1, n).version(n)
}

fn consume(rig: &Rig, window: usize) -> (Orders, Intake) {
    let orders = orders()
        .sequence(
            Sequence::contiguous(|message: &keylane::source::RawMessage| {
                message.version.unwrap_or_default()
            })
            .from(1)
            .gap_timeout(Duration::from_secs(60), OnGap::Halt)
            .store(rig.inbox.clone()),
        )
        .spawn(scripted(rig.script().otherwise(Act::ok())))
        .unwrap();
    let source = rig.inbox.source_with(SourceSettings::new().window(window));
    let guarantee = Guarantee::EffectivelyOnce;
    let intake = orders
        .consume_with(source, settings().guarantee(guarantee))
        .unwrap();
    (orders, intake)
}

#[tokio::test]
async fn an_early_version_waits_and_a_late_one_is_absorbed() {
    let rig = Rig::new().await;
    let (_orders, intake) = consume(&rig, 64);
    for n in [3, 1, 2] {
        assert!(
            !rig.inbox
                .accept_message(version(n))
                .await
                .unwrap()
                .is_duplicate()
        );
        tokio::time::sleep(5 * MS).await;
    }
    rig.nothing_waits().await;
    assert_eq!(rig.history.handled(), [1, 2, 3]);
    // By the inbox, before it is stored.
    assert!(
        rig.inbox
            .accept_message(version(2))
            .await
            .unwrap()
            .is_duplicate()
    );
    adds_up(&intake.stop().await);
    assert_eq!(rig.history.handled(), [1, 2, 3]);
}

#[tokio::test]
async fn an_early_version_waits_across_a_restart() {
    let mut rig = Rig::new().await;
    let (orders, intake) = consume(&rig, 64);
    for n in [1, 4, 3] {
        rig.inbox.accept_message(version(n)).await.unwrap();
    }
    until(|| intake.stats().received == 3 && intake.stats().held == 2).await;
    let report = intake.stop().within(Duration::ZERO).await;
    adds_up(&report);
    assert_eq!((report.acked, report.given_back), (1, 2));
    drop((orders, intake));
    rig.reopen().await;
    assert_eq!(rig.inbox.stats().await.unwrap().waiting, 2);
    let (_orders, intake) = consume(&rig, 64);
    until(|| intake.stats().held == 2).await;
    tokio::time::sleep(20 * MS).await;
    assert_eq!(rig.history.started(), [1]);
    rig.inbox.accept_message(version(2)).await.unwrap();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    assert_eq!(rig.history.handled(), [1, 2, 3, 4]);
}

/// More early versions than the window of their key: the one that they wait for is handed over,
/// whether what came before it is in the window or behind it.
#[tokio::test]
async fn the_awaited_version_comes_through_a_full_window() {
    let early = Vec::from_iter(2..=40);
    for early in [early.clone(), early.into_iter().rev().collect()] {
        let rig = Rig::new().await;
        let (_orders, intake) = consume(&rig, 4);
        for n in early {
            rig.inbox.accept_message(version(n)).await.unwrap();
        }
        until(|| intake.stats().held >= 4).await;
        assert!(rig.history.started().is_empty());
        rig.inbox.accept_message(version(1)).await.unwrap();
        rig.nothing_waits().await;
        adds_up(&intake.stop().await);
        assert_eq!(rig.history.handled(), Vec::from_iter(1..=40));
    }
}

/// A version that the inbox has forgotten and stores again: the recorded version of its key absorbs
/// it, also in another process.
#[tokio::test]
async fn a_late_version_is_absorbed_by_what_was_recorded() {
    let mut rig = Rig::new().await;
    let directory = tempfile::tempdir().unwrap();
    let forgetful = || Inbox::builder(directory.path()).remember_for(Duration::ZERO);
    for _ in 0..2 {
        rig.inbox.close().await.unwrap();
        rig.inbox = forgetful().open().await.unwrap();
        let (orders, intake) = consume(&rig, 64);
        for n in [1, 2] {
            tokio::time::sleep(5 * MS).await;
            let accepted = rig.inbox.accept_message(version(n)).await.unwrap();
            assert!(!accepted.is_duplicate());
        }
        rig.nothing_waits().await;
        let report = intake.stop().await;
        adds_up(&report);
        assert_eq!(report.acked, 2);
        drop((orders, intake));
    }
    assert_eq!(rig.history.handled(), [1, 2]);
    rig.inbox.close().await.unwrap();
}

#[tokio::test]
async fn effectively_once_wants_versions() {
    let rig = Rig::new().await;
    let orders = orders()
        .spawn(scripted(rig.script().otherwise(Act::ok())))
        .unwrap();
    let settings = settings().guarantee(Guarantee::EffectivelyOnce);
    let refused = orders.consume_with(rig.inbox.source(), settings);
    assert!(
        matches!(refused, Err(ConsumeError::NoVersions)),
        "{refused:?}"
    );
}
