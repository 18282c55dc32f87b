//! Dead letters in the inbox, and their way back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use keylane::consume::Intake;
use keylane::source::RawMessage;
use keylane_inbox::LetterKind;
use keylane_inbox::store::Settled;
use keylane_testkit::scenario::{boxed, by_key};
use keylane_testkit::{Act, Gate, Id, Script};

use crate::hindered::Hindered;
use crate::support::{MS, Orders, Rig, adds_up, id_of, orders, scripted, settings, until};

fn consume(rig: &Rig, script: Script) -> (Orders, Intake) {
    let orders = orders().spawn(scripted(script)).unwrap();
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    (orders, intake)
}

/// The handler of the next message sees the letter of the one before it.
#[tokio::test]
async fn a_letter_is_durable_before_its_key_goes_on() {
    let mut rig = Rig::new().await;
    rig.accept([1, 1, 2]).await;
    let letters = rig.inbox.letters();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let seen = Arc::clone(&seen);
        move |message: RawMessage| {
            let (letters, seen) = (letters.clone(), Arc::clone(&seen));
            async move {
                let id = id_of(&message);
                if id == 1 {
                    return Err("not this one".into());
                }
                let letter = letters.show(1).await.unwrap();
                seen.lock().unwrap().push((id, letter.is_some()));
                Ok(())
            }
        }
    };
    let orders = by_key()
        .retry(keylane::Retry::fixed(MS).max_attempts(3))
        .on_exhausted(keylane::OnExhausted::AtSource)
        .spawn(boxed(handler))
        .unwrap();
    let intake = orders.consume_with(rig.inbox.source(), settings()).unwrap();
    rig.nothing_waits().await;
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!((report.acked, report.dead_lettered), (2, 1));
    assert!(seen.lock().unwrap().contains(&(2, true)));

    let letters = rig.inbox.letters();
    let listed = letters.list(0, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    let letter = &listed[0];
    assert_eq!((letter.message.sequence, letter.attempts), (1, 3));
    assert_eq!(letter.kind, LetterKind::Failed);
    assert!(letter.error.contains("not this one"), "{}", letter.error);
    assert_eq!(letters.show(1).await.unwrap().as_ref(), Some(letter));
    assert_eq!(letters.show(2).await.unwrap(), None);
    assert_eq!(letters.purge([1, 2]).await.unwrap(), [1]);
    assert!(letters.list(0, 10).await.unwrap().is_empty());
    assert_eq!(rig.inbox.stats().await.unwrap().waiting, 0);
}

/// The same with a disk that takes its time.
#[tokio::test]
async fn a_key_waits_for_a_letter_that_is_being_written() {
    let mut rig = Rig::new().await;
    let store = Hindered::in_front_of(&mut rig);
    rig.accept([1, 1]).await;
    store.settlements.shut();
    let (_orders, intake) = consume(&rig, rig.script().message(1, Act::error()));
    store.settlements.arrivals(1).await;
    tokio::time::sleep(50 * MS).await;
    assert_eq!(rig.history.started(), [1, 1]);
    store.settlements.open();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    assert_eq!(rig.history.handled(), [2]);
}

#[tokio::test]
async fn a_panic_is_a_letter_of_its_kind() {
    let mut rig = Rig::new().await;
    rig.accept([1]).await;
    let (_orders, intake) = consume(&rig, rig.script().otherwise(Act::panic()));
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    let letters = rig.inbox.letters().list(0, 10).await.unwrap();
    assert_eq!(letters[0].kind, LetterKind::Panicked);
}

/// Letters outlive the process, and go ahead of what waits of their key.
#[tokio::test]
async fn redriven_letters_go_ahead_after_a_restart() {
    for redrive_first in [true, false] {
        let mut rig = Rig::new().await;
        rig.accept([1, 1]).await;
        let script = rig.script().otherwise(Act::error());
        let (orders, intake) = consume(&rig, script);
        rig.nothing_waits().await;
        adds_up(&intake.stop().await);
        drop(orders);
        rig.accept([1, 1, 2]).await;
        if redrive_first {
            rig.inbox.letters().redrive([1, 2]).await.unwrap();
        }
        rig.reopen().await;
        if !redrive_first {
            rig.inbox.letters().redrive([2, 1]).await.unwrap();
        }
        assert_eq!(rig.inbox.stats().await.unwrap().waiting, 5);
        let started = rig.history.started().len();
        let (_orders, intake) = consume(&rig, rig.script().otherwise(Act::ok()));
        rig.nothing_waits().await;
        adds_up(&intake.stop().await);
        assert_eq!(
            of_key_1(&rig.history.attempts()[started..]),
            [(1, 1), (2, 1), (3, 1), (4, 1)]
        );
    }
}

/// All but message 5, which is of another key.
fn of_key_1(attempts: &[(Id, u32)]) -> Vec<(Id, u32)> {
    let attempts = attempts.iter().copied();
    attempts.filter(|(id, _)| *id != 5).collect()
}

/// While the key is consumed: ahead of everything but what is in flight, whether that waits in its
/// lane or in the store.
#[tokio::test]
async fn redriven_letters_go_ahead_while_their_key_is_consumed() {
    for waiting in [3_u64, 200] {
        let mut rig = Rig::new().await;
        let gate = Gate::new();
        let is_mended = Arc::new(AtomicBool::new(false));
        let script = rig.script().choose({
            let (gate, is_mended) = (gate.clone(), Arc::clone(&is_mended));
            move |cue| match cue.id {
                1 | 2 if !is_mended.load(Ordering::SeqCst) => Act::error(),
                3 => Act::ok().waits(&gate),
                _ => Act::ok(),
            }
        });
        let (_orders, intake) = consume(&rig, script);
        rig.accept(std::iter::repeat_n(1, 3 + waiting as usize))
            .await;
        // Two attempts of each letter, and message 3 in flight.
        rig.started(5).await;
        let window = (waiting + 1).min(64) as usize;
        until(|| intake.stats().held == window).await;
        rig.inbox.letters().redrive([1, 2]).await.unwrap();
        // The source has seen it: what is parked was recalled.
        until(|| intake.stats().nacked > 0).await;
        is_mended.store(true, Ordering::SeqCst);
        gate.open();
        rig.nothing_waits().await;
        adds_up(&intake.stop().await);
        let mut wanted = vec![3, 1, 2];
        wanted.extend(4..=3 + waiting);
        assert_eq!(rig.history.started()[4..], wanted);
    }
}

/// A letter from before, redriven after the source has read past it and before it has handed that
/// over: it is not passed by.
#[tokio::test]
async fn a_letter_that_comes_back_into_a_page_is_not_passed_by() {
    let mut rig = Rig::new().await;
    let gate = Gate::new();
    rig.accept([1, 2]).await;
    let script = rig.script().choose({
        let gate = gate.clone();
        move |cue| match cue.id {
            1 => Act::ok().waits(&gate),
            _ => Act::error(),
        }
    });
    let (orders, intake) = consume(&rig, script);
    until(|| intake.stats().dead_lettered == 1).await;
    adds_up(&intake.stop().within(MS).await);
    drop(orders);
    let started = rig.history.started().len();
    rig.accept([2, 3]).await;
    rig.reopen().await;

    let script = rig.script().otherwise(Act::ok().waits(&gate));
    let orders = crate::support::orders().spawn(scripted(script)).unwrap();
    // The page is read, and the first of it is handed over: the letter is behind that.
    let intake = orders
        .consume_with(rig.inbox.source(), settings().held(1))
        .unwrap();
    rig.started(started + 1).await;
    rig.inbox.letters().redrive([2]).await.unwrap();
    tokio::time::sleep(20 * MS).await;
    gate.open();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    assert_eq!(rig.history.started()[started..], [1, 2, 3, 4]);
}

/// The same while the page is being read: what it brings does not know of the letter.
#[tokio::test]
async fn a_letter_that_comes_back_while_a_page_is_read_is_not_passed_by() {
    let mut rig = Rig::new().await;
    let store = Hindered::in_front_of(&mut rig);
    rig.accept([1, 1, 1]).await;
    let letter = Settled::DeadLetter {
        sequence: 2,
        attempts: 1,
        kind: LetterKind::Failed,
        error: String::new(),
    };
    rig.inbox.store().settle(vec![letter]).await.unwrap();
    store.pages.shut();
    let (_orders, intake) = consume(&rig, rig.script().otherwise(Act::ok()));
    store.pages.arrivals(1).await;
    let asked = store.asked.load(Ordering::SeqCst);
    rig.inbox.letters().redrive([2]).await.unwrap();
    until(|| store.asked.load(Ordering::SeqCst) > asked).await;
    store.pages.open();
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    assert_eq!(rig.history.started(), [1, 2, 3]);
}

/// Redriving goes on while other keys are busy: the source is interrupted all the time.
#[tokio::test]
async fn no_redrive_is_forgotten_under_load() {
    let mut rig = Rig::new().await;
    let is_mended = Arc::new(AtomicBool::new(false));
    let script = rig.script().choose({
        let is_mended = Arc::clone(&is_mended);
        move |cue| match cue.key {
            Some(0) if !is_mended.load(Ordering::SeqCst) => Act::error(),
            _ => Act::ok().yields(1),
        }
    });
    let (_orders, intake) = consume(&rig, script);
    let bad = rig.accept([0; 30]).await;
    rig.nothing_waits().await;
    is_mended.store(true, Ordering::SeqCst);
    for sequence in bad {
        rig.accept((0..300).map(|n| 1 + n % 50)).await;
        rig.inbox.letters().redrive([sequence]).await.unwrap();
    }
    rig.nothing_waits().await;
    adds_up(&intake.stop().await);
    assert_eq!(rig.inbox.stats().await.unwrap().letters, 0);
}

/// A message that was given up on for its crashes has all of its attempts when it is redriven,
/// whatever has been stopped and started meanwhile.
#[tokio::test]
async fn a_crashed_message_that_is_redriven_has_its_attempts_again() {
    for reopens in [false, true] {
        let mut rig = Rig::new().await;
        rig.accept([1, 1]).await;
        rig.crashed(&[(1, 2)]).await;
        let (orders, intake) = consume(&rig, rig.script().otherwise(Act::ok()));
        rig.nothing_waits().await;
        adds_up(&intake.stop().await);
        drop(orders);
        let letter = rig.inbox.letters().show(1).await.unwrap().unwrap();
        assert_eq!((letter.kind, letter.attempts), (LetterKind::Crashed, 2));
        assert_eq!(rig.history.attempts(), [(2, 1)]);

        rig.inbox.letters().redrive([1]).await.unwrap();
        if reopens {
            rig.reopen().await;
        }
        let (_orders, intake) = consume(&rig, rig.script().otherwise(Act::ok()));
        rig.nothing_waits().await;
        adds_up(&intake.stop().await);
        assert_eq!(rig.history.attempts(), [(2, 1), (1, 1)]);
    }
}
