//! G4: nothing is acknowledged before its handler is done, or its dead letter durable.
//!
//! The receipt is what a source will acknowledge by: the tests here do as a source does.

use keylane::error::ReceiptError;
use keylane::{OnExhausted, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, Random, SECOND, ScriptedReceipt, dispatcher, on_both, paused, quiet,
    scripted, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Rule, Script};
use tokio::task::JoinSet;

/// Acknowledges a message when its receipt says that it may be forgotten.
async fn acknowledge(history: History, id: u64, receipt: ScriptedReceipt) {
    match within(receipt).await {
        Ok(_) | Err(ReceiptError::DeadLettered(_)) => {
            history.ack_req(id);
            history.ack_ok(id);
        }
        Err(other) => panic!("id {id}: {other}"),
    }
}

#[test]
fn an_ack_follows_a_good_end_or_a_durable_letter() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| {
            let slow = (cue.id % 4) as u32;
            match Random::new(cue.id).below(4) {
                0 if cue.attempt < 3 => Act::error().yields(slow),
                1 => Act::panic_at_poll(1 + slow),
                _ => Act::ok().yields(slow),
            }
        });
        let letters = LetterBox::new(&history).refuses(1);
        let orders = dispatcher()
            .concurrency(16)
            .retry(Retry::fixed(MS).max_attempts(3))
            .on_exhausted(OnExhausted::dead_letter(
                letters.sink(|message: &Message| message.id),
            ))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let mut acks = JoinSet::new();
        for n in 0..200 {
            let receipt = producer.submit((n % 9 != 0).then_some(n % 9)).await;
            acks.spawn(acknowledge(history.clone(), n + 1, receipt));
        }
        while let Some(ack) = acks.join_next().await {
            ack.unwrap();
        }
        let report = producer.dispatcher.drain().await;
        let verdict = producer.judge(&report, Evidence::new().max_attempts(3));
        verdict.assert_judged(&[Rule::Acks, Rule::DeadLetters, Rule::NoLoss, Rule::Drain]);
        assert_eq!(report.done + report.dead_lettered, 200);
        assert!(report.dead_lettered > 10, "{report}");
    });
}

#[test]
fn no_receipt_before_the_handler_is_done() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let producer = Producer::new(&history, dispatcher().spawn(scripted(script)).unwrap());
        let mut receipt = producer.submit(1).await;
        gate.arrivals(1).await;
        assert!(tokio::time::timeout(SECOND, &mut receipt).await.is_err());
        assert_eq!(producer.dispatcher.stats().done, 0);
        gate.open();
        assert_eq!(receipt.await.unwrap(), 1);
        producer.finish(Evidence::new()).await;
    });
}

#[test]
fn no_receipt_and_no_next_message_before_the_letter_is_durable() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).message(1, Act::error());
        let letters = LetterBox::new(&history).waits(&gate);
        let orders = dispatcher()
            .on_exhausted(OnExhausted::dead_letter(
                letters.sink(|message: &Message| message.id),
            ))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let mut receipt = producer.submit(1).await;
        let mut behind = producer.submit(1).await;
        gate.arrivals(1).await;
        assert!(tokio::time::timeout(SECOND, &mut receipt).await.is_err());
        assert!(tokio::time::timeout(SECOND, &mut behind).await.is_err());
        gate.release(1);
        let told = receipt.await.unwrap_err();
        assert!(matches!(told, ReceiptError::DeadLettered(_)), "{told}");
        assert_eq!(behind.await.unwrap(), 2);
        quiet().await;
        let report = producer.finish(Evidence::new().max_attempts(1)).await;
        assert_eq!((report.done, report.dead_lettered), (1, 1));
    });
}
