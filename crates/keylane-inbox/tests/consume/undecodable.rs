//! Payloads that cannot be decoded.

use keylane::source::{RawMessage, Source};
use keylane_inbox::LetterKind;
use keylane_testkit::Act;

use crate::support::{Rig, adds_up, id_of, orders, scripted, settings};

/// Their letters are in the order of their key: behind what was before them, ahead of what is
/// behind. Redriven, and decodable by then, they are handled.
#[tokio::test]
async fn what_cannot_be_decoded_is_a_letter_in_its_place() {
    let mut rig = Rig::new().await;
    rig.accept([1, 1, 1, 2, 2]).await;
    let orders = orders()
        .spawn(scripted(rig.script().otherwise(Act::ok().yields(3))))
        .unwrap();
    let letters = rig.inbox.letters();
    let source = rig
        .inbox
        .source()
        .decode(|raw: &RawMessage| match id_of(raw) {
            2 | 4 => Err("no order".into()),
            _ => Ok(raw.clone()),
        });
    let intake = orders.consume_with(source, settings()).unwrap();
    rig.nothing_waits().await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!((report.acked, report.dead_lettered), (3, 2));
    let listed = letters.list(0, 10).await.unwrap();
    let kinds: Vec<_> = listed
        .iter()
        .map(|letter| (letter.message.sequence, letter.kind, letter.attempts))
        .collect();
    let kind = LetterKind::Undecodable;
    assert_eq!(kinds, [(2, kind, 0), (4, kind, 0)]);
    assert!(listed[0].error.contains("no order"), "{}", listed[0].error);
    assert_eq!(&listed[0].message.payload[..], 2_u64.to_be_bytes());
    let place = |id| {
        rig.history
            .handled()
            .iter()
            .position(|handled| *handled == id)
    };
    assert!(place(1) < place(3), "{:?}", rig.history.handled());

    letters.redrive([2, 4]).await.unwrap();
    rig.reopen().await;
    let source = rig.inbox.source();
    let intake = orders.consume_with(source, settings()).unwrap();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    assert_eq!(rig.history.handled().len(), 5);
}

/// The letter is written after what was before it has ended, and before what is behind it starts.
#[tokio::test]
async fn the_letter_waits_for_its_turn() {
    let mut rig = Rig::new().await;
    rig.accept([1, 1, 1]).await;
    let gate = keylane_testkit::Gate::new();
    let script = rig.script().message(1, Act::ok().waits(&gate));
    let orders = orders().spawn(scripted(script)).unwrap();
    let source = rig
        .inbox
        .source()
        .decode(|raw: &RawMessage| match id_of(raw) {
            2 => panic!("a decoder that panics"),
            _ => Ok(raw.clone()),
        });
    let intake = orders.consume_with(source, settings()).unwrap();
    rig.started(1).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let letters = rig.inbox.letters();
    assert!(letters.list(0, 10).await.unwrap().is_empty());
    assert_eq!(rig.history.started(), [1]);
    gate.open();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    assert_eq!(rig.history.handled(), [1, 3]);
    assert_eq!(letters.list(0, 10).await.unwrap().len(), 1);
}
