//! When a source is told: at most once, at least once, effectively once; and what is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use keylane::consume::{Guarantee, IntakeSettings};
use keylane::discipline::Sequence;
use keylane::error::{BoxError, ConsumeError};
use keylane::source::{Features, RawMessage, VersionStore};
use keylane::{Dispatcher, OnExhausted};
use keylane_testkit::reference::{Fate, Loss, MessageState};
use keylane_testkit::scenario::{quiet, settle, within};
use keylane_testkit::{Act, Evidence, Gate, Script};

use crate::support::{Rig, adds_up, orders, plain, scripted, settings, until};

fn at_most_once() -> IntakeSettings {
    settings().guarantee(Guarantee::AtMostOnce)
}

#[tokio::test(start_paused = true)]
async fn at_least_once_acks_after_the_handler() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = rig.consume(&orders);
    rig.publish([1, 2]);
    rig.started(2).await;
    assert_eq!(rig.server.count(MessageState::is_settled), 0);
    gate.release(1);
    let done = |standing| standing == MessageState::Confirmed(Fate::Done);
    rig.server.until(|server| server.count(done) == 1).await;
    gate.open();
    rig.finish(&orders, intake).await;
}

#[tokio::test(start_paused = true)]
async fn at_most_once_acks_before_the_handler_and_repeats_nothing() {
    let rig = Rig::new(plain());
    let gate = Gate::new();
    let orders = rig.spawn(Act::ok().waits(&gate));
    let intake = orders
        .consume_with(rig.server.source(), at_most_once())
        .unwrap();
    rig.publish([1, 1, 2]);
    rig.started(2).await;
    assert_eq!(rig.server.left(), 0);
    // The server dies, and has nothing to give again.
    rig.server.kill();
    rig.server.start();
    gate.open();
    rig.handled(3).await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!((report.received, report.acked), (3, 3));
    assert_eq!(rig.history.handled().len(), 3);
    rig.judge(&orders, Evidence::new());
}

/// What could not be acked before does not run: it comes again.
#[tokio::test(start_paused = true)]
async fn at_most_once_runs_nothing_whose_ack_failed() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::ok());
    rig.server.faults().lose_settles(2, Loss::Told);
    let intake = orders
        .consume_with(rig.server.source(), at_most_once())
        .unwrap();
    rig.publish([1, 1, 2]);
    let report = rig.finish(&orders, intake).await;
    assert_eq!(rig.history.handled().len(), 3);
    assert_eq!((report.acked, report.given_back), (3, 6));
    assert_eq!(report.restarts, 2);
}

/// A version store in memory.
#[derive(Clone, Default)]
struct Versions(Arc<Mutex<HashMap<Bytes, u64>>>);

#[keylane::async_trait]
impl VersionStore<Bytes> for Versions {
    async fn last(&self, key: &Bytes) -> Result<Option<u64>, BoxError> {
        Ok(self.0.lock().unwrap().get(key).copied())
    }

    async fn record(&self, key: &Bytes, version: u64) -> Result<(), BoxError> {
        self.0.lock().unwrap().insert(key.clone(), version);
        Ok(())
    }
}

/// What was handled and comes again is acked without running.
#[tokio::test(start_paused = true)]
async fn effectively_once_does_not_run_what_comes_again() {
    let rig = Rig::new(plain());
    let versions = Versions::default();
    let orders = orders()
        .sequence(
            Sequence::contiguous(|raw: &RawMessage| raw.version.unwrap())
                .from(1)
                .store(versions.clone()),
        )
        .spawn(scripted(Script::new(&rig.history)))
        .unwrap();
    rig.server.faults().cut_before_ack(1);
    let once = settings().guarantee(Guarantee::EffectivelyOnce);
    let intake = orders.consume_with(rig.server.source(), once).unwrap();
    rig.publish([1, 1, 1, 2]);
    rig.server.until(|server| server.left() == 0).await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!(report.acked, 4);
    assert!(report.received > 4, "{report}");
    let mut handled = rig.history.handled();
    handled.sort_unstable();
    assert_eq!(handled, [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_consumed_is_refused_with_a_typed_error() {
    let rig = Rig::new(plain());
    let script = || scripted(Script::new(&rig.history));
    let source = || rig.server.source();

    let unnamed = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone());
    let unnamed = unnamed.spawn(script()).unwrap();
    let refused = unnamed.consume(source());
    assert!(matches!(refused, Err(ConsumeError::Discards)));

    let at_source = orders().on_exhausted(OnExhausted::AtSource);
    let at_source = at_source.spawn(script()).unwrap();
    let refused = at_source.consume(source());
    assert!(matches!(refused, Err(ConsumeError::NoDeadLetters)));
    let keeps = keylane_testkit::reference::ReferenceServer::new(Features::new().dead_letters());
    assert!(at_source.consume(keeps.source()).is_ok());

    let plain = orders().spawn(script()).unwrap();
    let once = settings().guarantee(Guarantee::EffectivelyOnce);
    let refused = plain.consume_with(source(), once);
    assert!(matches!(refused, Err(ConsumeError::NoVersions)));

    let _ = plain.close().await;
    let refused = plain.consume(source());
    assert!(matches!(refused, Err(ConsumeError::Closed)));
    quiet().await;
    assert_eq!(rig.server.counts().opened, 0);
}

/// `OnExhausted::Discard` that was named gives a message up, and acks it.
#[tokio::test(start_paused = true)]
async fn a_named_discard_acks_what_it_gives_up() {
    let rig = Rig::new(plain());
    let script = Script::new(&rig.history).message(1, Act::error());
    let orders = orders()
        .on_exhausted(OnExhausted::Discard)
        .spawn(scripted(script))
        .unwrap();
    let intake = rig.consume(&orders);
    rig.publish([1, 1]);
    let evidence = Evidence::new().discarded([1]);
    let report = rig.finish_with(&orders, intake, evidence).await;
    assert_eq!(report.acked, 2);
    let discarded = |standing| standing == MessageState::Confirmed(Fate::Discarded);
    assert_eq!(rig.server.count(discarded), 1);
    until(|| rig.history.handled() == [2]).await;
}

/// A message without a key has no lane to halt. Its source is not told that it is settled, others go
/// on, and it comes again when the cause is mended.
#[tokio::test(start_paused = true)]
async fn halt_loses_no_message_without_a_key() {
    for ends in ["stop", "revoke", "drop", "close"] {
        let rig = Rig::new(plain());
        let broken = rig.spawn(Act::error());
        let intake = rig.consume(&broken);
        let without_key = (1..=3_u64).map(|id| RawMessage::new(id.to_be_bytes().to_vec()));
        rig.server.publish(without_key);
        rig.started(3).await;
        settle().await;
        let stats = intake.stats();
        assert_eq!((stats.held, stats.acked, rig.server.left()), (3, 0, 3));
        match ends {
            "stop" => {
                let report = intake.stop().await;
                assert_eq!((report.acked, report.given_back), (0, 3));
            }
            "revoke" => {
                rig.server.revoke();
                // They come again.
                rig.started(6).await;
                assert_eq!(intake.stats().acked, 0);
                assert_eq!(intake.stop().await.acked, 0);
            }
            "drop" => drop(intake),
            _ => {
                let report = broken.close().await;
                assert_eq!((report.accepted, report.handed_back), (3, 3));
                drop(intake);
            }
        }
        drop(broken);
        settle().await;
        assert_eq!(rig.server.left(), 3, "{ends}");
        let mended = rig.spawn(Act::ok());
        let intake = rig.consume(&mended);
        rig.handled(3).await;
        rig.server.until(|server| server.left() == 0).await;
        assert_eq!(intake.stop().await.acked, 3);
    }
}

/// A drain does not wait for what is held for good.
#[tokio::test(start_paused = true)]
async fn a_drain_gives_back_what_halt_holds() {
    let rig = Rig::new(plain());
    let orders = rig.spawn(Act::error());
    let intake = rig.consume(&orders);
    rig.server
        .publish([RawMessage::new(1_u64.to_be_bytes().to_vec())]);
    rig.started(1).await;
    settle().await;
    let drain = orders.drain();
    let report = within(async { drain.await }).await;
    assert_eq!((report.accepted, report.handed_back), (1, 1));
    drop(intake);
    assert_eq!(rig.server.left(), 1);
}
