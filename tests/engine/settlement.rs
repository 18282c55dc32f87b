//! G5: every accepted message settles exactly once, on every path; the receipt says on which.
//!
//! Here are the paths one by one. `drains_under_load` and `runtime_dropped` mix them at random.

use futures::FutureExt;
use keylane::error::{Failure, ReceiptError};
use keylane::{OnExhausted, Overflow, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, SECOND, ScriptedDispatcher, ScriptedReceipt, assert_nothing_left,
    assert_report_adds_up, dispatcher, on_both, paused, quiet, scripted, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Script, ScriptError};

fn message(key: u64, id: u64) -> Message {
    Message { key: Some(key), id }
}

/// What a receipt says, in a few words.
async fn told(receipt: ScriptedReceipt) -> String {
    match receipt.await {
        Ok(id) => format!("done: {id}"),
        Err(ReceiptError::Failed(failure)) => format!("failed: {failure}"),
        Err(ReceiptError::DeadLettered(failure)) => format!("dead-lettered: {failure}"),
        Err(ReceiptError::HandedBack { message, .. }) => format!("handed back: {}", message.id),
        Err(ReceiptError::Dropped(message)) => format!("dropped: {}", message.id),
        Err(ReceiptError::Interrupted(None)) => "interrupted".to_owned(),
        Err(ReceiptError::Interrupted(Some(message))) => format!("interrupted: {}", message.id),
        Err(ReceiptError::Stopped) => "stopped".to_owned(),
        Err(other) => panic!("unheard of: {other}"),
    }
}

/// Drains, and insists on these counts: done, dead-lettered, discarded, handed back.
async fn finish(orders: ScriptedDispatcher, counts: [u64; 4]) {
    let report = orders.drain().await;
    assert_report_adds_up(&report);
    let counted = [
        report.done,
        report.dead_lettered,
        report.discarded,
        report.handed_back,
    ];
    assert_eq!(counted, counts);
    assert_nothing_left(&orders);
}

#[test]
fn by_the_handler() {
    paused().block_on(async {
        let script = Script::new(&History::new())
            .message(2, Act::error())
            .message(3, Act::panic_at_poll(2))
            .message(4, Act::never());
        let orders = dispatcher()
            .attempt_timeout(SECOND)
            .spawn(scripted(script))
            .unwrap();
        let mut receipts = Vec::new();
        for id in 1..=4 {
            receipts.push(orders.submit(message(1, id)).await.unwrap());
        }
        let mut answers = Vec::new();
        for receipt in receipts {
            answers.push(told(receipt).await);
        }
        let expected = [
            "done: 1",
            "failed: the handler failed: scripted error of id 2 (Error)",
            "failed: the handler panicked: scripted panic of id 3",
            "failed: the attempt took longer than 1s",
        ];
        assert_eq!(answers, expected);
        finish(orders, [1, 0, 3, 0]).await;
    });
}

#[test]
fn by_the_dead_letter_sink() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).message(1, Act::error());
        let letters = LetterBox::new(&history).refuses(3);
        let orders = dispatcher()
            .retry(Retry::fixed(MS).max_attempts(2))
            .on_exhausted(OnExhausted::dead_letter(
                letters.sink(|message: &Message| message.id),
            ))
            .spawn(scripted(script))
            .unwrap();
        let receipt = orders.submit(message(1, 1)).await.unwrap();
        assert_eq!(
            told(receipt).await,
            "dead-lettered: the handler failed: scripted error of id 1 (Error)"
        );
        assert_eq!(letters.letters().len(), 1);
        finish(orders, [0, 1, 0, 0]).await;
    });
}

#[test]
fn by_a_full_lane() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let letters = LetterBox::new(&history);
        for overflow in [Overflow::DropOldest, Overflow::DeadLetter] {
            gate.shut();
            let orders = dispatcher()
                .lane_capacity(2, overflow)
                .overflow_sink(letters.sink(|message: &Message| message.id))
                .spawn(scripted(script.clone()))
                .unwrap();
            let mut receipts = Vec::new();
            for id in 1..=3 {
                receipts.push(orders.submit(message(1, id)).await.unwrap());
                quiet().await;
            }
            gate.open();
            let mut answers = Vec::new();
            for receipt in receipts {
                answers.push(told(receipt).await);
            }
            if overflow == Overflow::DropOldest {
                assert_eq!(answers, ["done: 1", "dropped: 2", "done: 3"]);
                finish(orders, [2, 0, 1, 0]).await;
            } else {
                let third = "dead-lettered: the lane of the key was full";
                assert_eq!(answers, ["done: 1", "done: 2", third]);
                finish(orders, [2, 1, 0, 0]).await;
            }
        }
    });
}

#[test]
fn by_the_operator_of_a_halted_lane() {
    paused().block_on(async {
        let script = Script::new(&History::new())
            .message(1, Act::error())
            .message(2, Act::error())
            .attempt(3, 1, Act::error());
        let orders = dispatcher()
            .on_exhausted(OnExhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let skipped = orders.submit(message(1, 1)).await.unwrap();
        let replaced = orders.submit(message(1, 2)).await.unwrap();
        quiet().await;
        let lane = orders.lane(&1);
        lane.skip().unwrap();
        assert_eq!(
            told(skipped).await,
            "failed: the handler failed: scripted error of id 1 (Error)"
        );
        quiet().await;
        assert_eq!(lane.replace(message(1, 9)), Ok(message(1, 2)));
        assert_eq!(told(replaced).await, "done: 9");
        finish(orders, [1, 0, 1, 0]).await;
    });
}

#[test]
fn by_an_ending() {
    paused().block_on(async {
        let gate = Gate::new();
        let script = Script::new(&History::new()).otherwise(Act::ok().waits(&gate));
        for (kept, in_flight) in [(false, "interrupted"), (true, "interrupted: 1")] {
            // A message is kept beside its handler only where another attempt may need it.
            let orders = if kept {
                dispatcher()
                    .retry(Retry::fixed(MS))
                    .spawn(scripted(script.clone()))
            } else {
                dispatcher().spawn(scripted(script.clone()))
            }
            .unwrap();
            let first = orders.submit(message(1, 1)).await.unwrap();
            let second = orders.submit(message(1, 2)).await.unwrap();
            quiet().await;
            let report = orders.abort().await;
            assert_eq!(told(first).await, in_flight);
            assert_eq!(told(second).await, "handed back: 2");
            assert_eq!((report.handed_back, report.interrupted), (2, 1));
            assert!(report.returned.is_empty(), "they went to their receipts");
            assert_report_adds_up(&report);
            assert_nothing_left(&orders);
        }
    });
}

#[test]
fn by_the_end_of_the_runtime() {
    let gate = Gate::new();
    let script = Script::new(&History::new()).otherwise(Act::ok().waits(&gate));
    let runtime = paused();
    let (orders, receipts) = runtime.block_on(async {
        let orders = dispatcher().spawn(scripted(script)).unwrap();
        let mut receipts = Vec::new();
        for id in 1..=2 {
            receipts.push(orders.submit(message(1, id)).await.unwrap());
        }
        quiet().await;
        // This one is still in the channel.
        receipts.push(orders.try_submit(message(2, 3)).unwrap());
        (orders, receipts)
    });
    drop(runtime);
    let answers: Vec<_> = receipts
        .into_iter()
        .map(|receipt| {
            told(receipt)
                .now_or_never()
                .expect("the receipt is resolved")
        })
        .collect();
    assert_eq!(answers, ["interrupted", "handed back: 2", "handed back: 3"]);
    assert_eq!(orders.stats().handed_back, 3);
    assert_nothing_left(&orders);
}

/// No sender has asked for a receipt: the same counts, and what is handed back is in the report.
#[test]
fn without_receipts_too() {
    paused().block_on(async {
        let gate = Gate::new();
        let script = Script::new(&History::new())
            .otherwise(Act::ok().waits(&gate))
            .message(1, Act::ok())
            .message(2, Act::error());
        let orders = dispatcher().spawn(scripted(script)).unwrap();
        for id in 1..=4 {
            orders.send(message(1, id)).await.unwrap();
        }
        quiet().await;
        let report = orders.abort().await;
        assert_report_adds_up(&report);
        let counted = [
            report.done,
            report.dead_lettered,
            report.discarded,
            report.handed_back,
        ];
        assert_eq!(counted, [1, 0, 1, 2]);
        let returned: Vec<_> = report
            .returned
            .into_iter()
            .map(|back| {
                (
                    back.key,
                    back.message.map(|message| message.id),
                    back.attempts,
                )
            })
            .collect();
        assert_eq!(returned, [(Some(1), None, 1), (Some(1), Some(4), 0)]);
    });
}

/// The failure a receipt gets is the handler's own error, not a description of it.
#[test]
fn the_error_comes_through_whole() {
    paused().block_on(async {
        let script = Script::new(&History::new()).otherwise(Act::fatal());
        let orders = dispatcher().spawn(scripted(script)).unwrap();
        let receipt = orders.submit(message(1, 5)).await.unwrap();
        let Err(ReceiptError::Failed(failure)) = receipt.await else {
            panic!("it fails")
        };
        assert_eq!(failure, Failure::Error(ScriptError::Fatal(5)));
        assert_eq!(failure.error(), Some(&ScriptError::Fatal(5)));
    });
}

/// Futures that were ready at their first poll were not seen to complete, and their elements lost.
#[test]
fn futures_that_complete_at_once_lose_nothing() {
    on_both(|| async {
        for keys in [1, 2, 1_000] {
            let history = History::new();
            let orders = dispatcher()
                .capacity(500)
                .spawn(scripted(Script::new(&history)))
                .unwrap();
            let producer = Producer::new(&history, orders);
            let mut receipts = Vec::new();
            for n in 0..3_000 {
                receipts.push(producer.submit(n % keys).await);
            }
            for (n, receipt) in receipts.into_iter().enumerate() {
                assert_eq!(within(receipt).await.unwrap(), n as u64 + 1);
            }
            let report = producer.finish(Evidence::new()).await;
            assert_eq!(report.done, 3_000);
        }
    });
}
