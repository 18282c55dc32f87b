//! Dead letters that the source keeps.

use keylane::consume::Intake;
use keylane::discipline::Coalesce;
use keylane::source::{Features, Outcome};
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_testkit::reference::{Call, Fate, MessageState};
use keylane_testkit::scenario::{MS, SECOND, quiet};
use keylane_testkit::{Act, Evidence, Script, ScriptError};

use crate::given::Given;
use crate::support::{Orders, Rig, adds_up, id_of, message, orders, plain, scripted, until};

/// Message 1 fails for ever.
fn at_source(rig: &Rig) -> Orders {
    let script = Script::new(&rig.history).message(1, Act::error());
    orders()
        .retry(Retry::fixed(MS).max_attempts(2))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(scripted(script))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_kept_before_its_key_goes_on() {
    let rig = Rig::new(plain().dead_letters());
    let orders = at_source(&rig);
    rig.server.faults().refuse_letters(3);
    let intake = rig.consume(&orders);
    rig.publish([1, 1, 2]);
    rig.handled(1).await;
    quiet().await;
    assert_eq!(rig.history.handled(), [3]);
    rig.handled(2).await;
    let letters = rig.server.letters();
    assert_eq!(letters.len(), 1);
    assert_eq!((id_of(&letters[0].message), letters[0].attempts), (1, 2));
    assert!(
        letters[0].why.contains("scripted error of id 1"),
        "{}",
        letters[0].why
    );
    let evidence = Evidence::new().discarded([1]);
    let report = rig.finish_with(&orders, intake, evidence).await;
    assert_eq!((report.acked, report.dead_lettered), (2, 1));
    let dead = |standing| standing == MessageState::Confirmed(Fate::DeadLettered);
    assert_eq!(rig.server.count(dead), 1);
}

/// Dead letters alone are confirmed, too, and before the end.
#[tokio::test(start_paused = true)]
async fn the_ack_of_a_dead_letter_is_confirmed_soon() {
    let rig = Rig::new(plain().dead_letters());
    let orders = at_source(&rig);
    let intake = rig.consume(&orders);
    rig.publish([1]);
    until(|| intake.stats().dead_lettered == 1).await;
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(rig.server.left(), 0);
    adds_up(&intake.stop().await);
}

/// A source that panics over a letter, or never answers, is asked again.
#[tokio::test(start_paused = true)]
async fn a_letter_that_the_source_fails_to_keep_is_offered_again() {
    for fault in 0..3 {
        let rig = Rig::new(plain().dead_letters());
        let orders = at_source(&rig);
        let faults = rig.server.faults();
        let intake = rig.consume(&orders);
        match fault {
            0 => faults.panic_in(Call::DeadLetter, 1),
            1 => faults.fail(Call::DeadLetter, 1),
            _ => {
                rig.publish([1, 1]);
                rig.started(1).await;
                rig.server.stall();
                tokio::time::sleep(5 * SECOND).await;
                rig.history.revoke(0);
            }
        }
        if fault < 2 {
            rig.publish([1, 1]);
        }
        rig.handled(1).await;
        let evidence = Evidence::new().discarded([1]);
        let report = rig.finish_with(&orders, intake, evidence).await;
        assert_eq!(rig.server.letters().len(), 1);
        assert_eq!((report.acked, report.dead_lettered), (1, 1));
        assert_eq!(report.restarts, u64::from(fault == 2), "fault {fault}");
    }
}

/// A message that was sent directly has no source that could keep its letter: its key halts.
#[tokio::test(start_paused = true)]
async fn a_direct_message_halts_its_key() {
    let rig = Rig::new(plain().dead_letters());
    let orders = at_source(&rig);
    let intake = rig.consume(&orders);
    orders.send(message(1, 1)).await.unwrap();
    until(|| orders.stats().halted == 1).await;
    assert!(rig.server.letters().is_empty());
    adds_up(&intake.stop().await);
    let report = orders.close().await;
    assert_eq!(report.handed_back, 1);
}

/// Consumes three messages of one key, of which the last one stands for the others, and fails.
async fn fails_as_one(source: Given) -> Intake {
    let items = Dispatcher::builder(|_: &u64| 7_u64)
        .coalesce(Coalesce::keep_latest())
        .on_exhausted(OnExhausted::AtSource)
        .spawn(|id: u64| async move { Err::<(), _>(ScriptError::Error(id)) })
        .unwrap();
    items.lane(&7).pause();
    let intake = items.consume(source).unwrap();
    until(|| intake.stats().held == 3).await;
    quiet().await;
    items.lane(&7).resume().unwrap();
    intake
}

/// One message stands for others, and the source keeps the letters of some of them. If it recalls all
/// then, those letters stand: the message would come again beside its letter.
#[tokio::test(start_paused = true)]
async fn what_has_a_letter_is_not_returned() {
    let features = Features::new().dead_letters().nack();
    let (source, told) = Given::new(features, (1..=3).map(|id| (id, 0)));
    told.refuse_letter(3);
    told.refuse_letter(3);
    let intake = fails_as_one(source).await;
    until(|| !told.letters().is_empty()).await;
    quiet().await;
    let kept = told.letters();
    assert!(!kept.is_empty() && kept.len() < 3, "{kept:?}");
    told.recall();
    until(|| told.settled().len() == 3).await;
    for id in 1..=3 {
        let outcome = told.outcome(id).unwrap();
        let has_letter = told.letters().contains(&id);
        assert_eq!(
            outcome == Outcome::DeadLettered,
            has_letter,
            "{id}: {told:?}"
        );
    }
    let report = intake.stop().await;
    adds_up(&report);
    assert_eq!(report.dead_lettered, kept.len() as u64);
}

/// A letter that was kept is not kept again, when the one of another message has to be.
#[tokio::test(start_paused = true)]
async fn a_letter_is_kept_once() {
    let features = Features::new().dead_letters();
    let (source, told) = Given::new(features, (1..=3).map(|id| (id, 0)));
    for _ in 0..4 {
        told.refuse_letter(3);
    }
    let intake = fails_as_one(source).await;
    until(|| told.settled().len() == 3).await;
    let mut letters = told.letters();
    letters.sort();
    assert_eq!(letters, [1, 2, 3]);
    adds_up(&intake.stop().await);
}
