//! Order per key, and how much of each key is in memory.

use std::time::Duration;

use keylane::source::RawMessage;
use keylane_inbox::SourceSettings;
use keylane_testkit::scenario::{boxed, by_key};
use keylane_testkit::{Act, Evidence, Gate};

use crate::support::{MS, Rig, adds_up, orders, scripted, settings, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_key_are_handled_in_the_order_in_which_they_were_accepted() {
    let mut rig = Rig::new().await;
    let script = rig
        .script()
        .choose(|cue| Act::ok().yields(cue.id as u32 % 3));
    let orders = orders().spawn(scripted(script)).unwrap();
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    for round in 0..20_u64 {
        // Bursts of one key, and all keys in turn.
        rig.accept((0..20).chain(std::iter::repeat_n(round, 20)))
            .await;
    }
    rig.nothing_waits().await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!((report.received, report.acked), (800, 800));
    rig.judge(Evidence::new());
}

/// A key has its window in memory, and what is behind it stays in the store; the other keys go on,
/// also those whose messages were accepted after it.
#[tokio::test]
async fn a_key_that_is_held_up_holds_up_no_other() {
    let mut rig = Rig::new().await;
    let gate = Gate::new();
    let script = rig.script().key(0, Act::ok().waits(&gate));
    let orders = orders().spawn(scripted(script)).unwrap();
    rig.accept(std::iter::repeat_n(0, 2_000).chain(1..200))
        .await;
    let source = rig.inbox.source_with(SourceSettings::new().window(8));
    let intake = orders.consume_with(source, settings()).unwrap();
    rig.accept(std::iter::repeat_n(0, 500).chain(1..200)).await;
    rig.handled(398).await;
    until(|| intake.stats().held == 8).await;
    assert_eq!(intake.stats().aside, 0);
    gate.open();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    rig.judge(Evidence::new());
}

/// A key beyond its window, with handlers that are slower than the store: refilled as it settles. There
/// are more messages than are read at once.
#[tokio::test]
async fn a_window_of_one_keeps_the_order() {
    let mut rig = Rig::new().await;
    let script = rig.script().otherwise(Act::ok().yields(1));
    let orders = orders().spawn(scripted(script)).unwrap();
    rig.accept((0..2_500).map(|n| n % 3)).await;
    let source = rig.inbox.source_with(SourceSettings::new().window(1));
    let intake = orders.consume_with(source, settings()).unwrap();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    rig.judge(Evidence::new());
}

/// Bytes are limited over all keys.
#[tokio::test]
async fn large_payloads_are_not_all_in_memory() {
    let rig = Rig::new().await;
    let gate = Gate::new();
    let script = rig.script().otherwise(Act::ok().waits(&gate));
    let orders = orders().spawn(scripted(script)).unwrap();
    for id in 1..=8_u64 {
        rig.history.sending(id, 1, id).ok();
        let mut payload = id.to_be_bytes().to_vec();
        payload.resize(1 << 20, 0);
        rig.inbox.accept(id.to_string(), payload).await.unwrap();
    }
    let source = rig.inbox.source_with(SourceSettings::new().bytes(2 << 20));
    let intake = orders.consume_with(source, settings()).unwrap();
    until(|| intake.stats().held == 2).await;
    tokio::time::sleep(100 * MS).await;
    assert_eq!(intake.stats().held, 2);
    gate.open();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    rig.judge(Evidence::new());
}

/// More than can be remembered of keys whose windows are full holds the others up, and says so in
/// no other way than this; nothing is lost by it.
#[tokio::test]
async fn what_is_remembered_is_limited() {
    let mut rig = Rig::new().await;
    let gate = Gate::new();
    let script = rig.script().key(0, Act::ok().waits(&gate));
    let orders = orders().spawn(scripted(script)).unwrap();
    rig.accept(std::iter::repeat_n(0, 50).chain([1])).await;
    let few = SourceSettings::new().window(2).remembered(10);
    let intake = orders
        .consume_with(rig.inbox.source_with(few), settings())
        .unwrap();
    until(|| intake.stats().held == 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(rig.history.handled().is_empty());
    gate.open();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    rig.judge(Evidence::new());
}

/// A handler gets everything that was accepted, the id included.
#[tokio::test]
async fn a_handler_gets_all_of_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let inbox = keylane_inbox::Inbox::open(directory.path().join("inbox"))
        .await
        .unwrap();
    let (sender, mut handled) = tokio::sync::mpsc::unbounded_channel();
    let dispatcher = by_key()
        .on_exhausted(keylane::OnExhausted::AtSource)
        .spawn(boxed(move |raw: RawMessage| {
            let sent = sender.send(raw);
            async move { sent.map_err(|_| "the test has ended".into()) }
        }))
        .unwrap();
    let intake = dispatcher.consume(inbox.source()).unwrap();
    let message = keylane_inbox::NewMessage::new("user-7", "{}")
        .id("order-1")
        .version(3)
        .header("trace", "4711");
    inbox.accept_message(message).await.unwrap();
    inbox.accept("user-7", "[]").await.unwrap();
    let raw = handled.recv().await.unwrap();
    assert_eq!(raw.key.as_deref(), Some(&b"user-7"[..]));
    assert_eq!(raw.payload, "{}");
    assert_eq!(raw.id.as_deref(), Some(&b"order-1"[..]));
    assert_eq!((raw.version, raw.attempt), (Some(3), 1));
    assert_eq!(
        raw.header("trace").map(|value| &value[..]),
        Some(&b"4711"[..])
    );
    assert!(raw.enqueued_at.is_some());
    assert_eq!(handled.recv().await.unwrap().id, None);
    drop(intake);
}
