//! Messages without a key: no order, no lane, and all else as for the others.

use keylane::error::ReceiptError;
use keylane::{OnExhausted, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, SECOND, dispatcher, on_both, paused, quiet, scripted, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Script};

#[test]
fn they_run_side_by_side_and_behind_no_other() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let orders = dispatcher()
            .concurrency(20)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send_all(None, 15).await;
        // Zero is a key like any other, and so is the hash that absent keys carry.
        producer.send_all(0, 3).await;
        producer.send_all(None, 15).await;
        quiet().await;
        // One of key 0, and 19 of the others.
        assert_eq!(gate.waiting(), 20);
        let stats = producer.dispatcher.stats();
        assert_eq!((stats.lanes, stats.ready), (1, 11));
        gate.open();
        producer.finish(Evidence::new()).await;
    });
}

#[test]
fn they_are_retried_and_overtaken_meanwhile() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| {
            if cue.id % 3 == 0 && cue.attempt < 3 {
                Act::error().yields(1)
            } else {
                Act::ok()
            }
        });
        let orders = dispatcher()
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let mut receipts = Vec::new();
        for _ in 0..90 {
            receipts.push(producer.submit(None).await);
        }
        for receipt in receipts {
            within(receipt).await.unwrap();
        }
        assert_eq!(producer.dispatcher.stats().retries, 60);
        producer.finish(Evidence::new().max_attempts(5)).await;
    });
}

#[test]
fn they_are_dead_lettered_discarded_and_handed_back() {
    paused().block_on(async {
        let history = History::new();
        let letters = LetterBox::new(&history).refuses(2);
        let script = Script::new(&history)
            .message(1, Act::error())
            .message(2, Act::panic());
        let orders = dispatcher()
            .on_exhausted(OnExhausted::dead_letter(
                letters.sink(|message: &Message| message.id),
            ))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send_all(None, 3).await;
        let report = producer.finish(Evidence::new().max_attempts(1)).await;
        assert_eq!((report.done, report.dead_lettered), (1, 2));

        let history = History::new();
        let script = Script::new(&history).otherwise(Act::error());
        let producer = Producer::new(&history, dispatcher().spawn(scripted(script)).unwrap());
        let receipt = producer.submit(None).await;
        assert!(matches!(receipt.await, Err(ReceiptError::Failed(_))));
        producer.finish(Evidence::new().discarded([1])).await;

        let history = History::new();
        let script = Script::new(&history).otherwise(Act::error());
        let orders = dispatcher()
            .retry(Retry::fixed(SECOND))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send_all(None, 2).await;
        quiet().await;
        assert_eq!(producer.dispatcher.stats().backing_off, 2);
        let report = producer.dispatcher.close().await;
        let back: Vec<_> = report
            .returned
            .iter()
            .map(|back| (back.key, back.attempts))
            .collect();
        assert_eq!(back, [(None, 1), (None, 1)]);
        producer.judge(&report, Evidence::new().handed_back([1, 2]));
    });
}

/// A lane limit is a limit of a key; only the capacity stops these.
#[test]
fn they_fill_no_lane() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let orders = dispatcher()
            .capacity(50)
            .lane_capacity(1, keylane::Overflow::Reject)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for _ in 0..50 {
            producer.try_send(None).unwrap();
        }
        quiet().await;
        assert!(matches!(
            producer.try_send(None),
            Err(keylane::error::TrySendError::Full(_))
        ));
        assert_eq!(producer.dispatcher.stats().full_lanes, 0);
        gate.open();
        producer.finish(Evidence::new()).await;
    });
}
