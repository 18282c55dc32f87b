//! Old lanes that are halted, paused, purged or skipped, and every end in the middle of a change.

use std::sync::Arc;
use std::time::Duration;

use keylane::discipline::Delayed;
use keylane::error::{ReceiptError, ResizeError};
use keylane::{OnExhausted, Overflow, Retry};
use keylane_testkit::scenario::{
    MS, Message, SECOND, paused, quiet, scripted, settle_until, threads, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Script};

use super::support::{Producer, begin, finish, hashed, judge, users};

/// The user of lane 0 who stays there, and is in trouble.
fn troubled() -> u64 {
    users(4, 0, 8, false).next().unwrap()
}

/// A user that moves from lane 0.
fn mover() -> u64 {
    users(4, 0, 8, true).next().unwrap()
}

#[test]
fn retries_and_letters_of_the_old_lane_come_first() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history)
            .message(1, Act::error())
            .attempt(2, 1, Act::error());
        let letters = LetterBox::new(&history).refuses(2);
        let lanes = hashed(4)
            .retry(Retry::fixed(SECOND).max_attempts(2))
            .on_exhausted(OnExhausted::DeadLetter(Arc::new(
                letters.sink(|message: &Message| message.id),
            )))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, lanes);
        producer.send(mover()).await;
        producer.send(mover()).await;
        quiet().await;
        let change = begin(&producer, 8).await;
        producer.send(mover()).await;
        producer.send(mover()).await;
        within(change).await.unwrap().unwrap();
        finish(producer, Evidence::new().max_attempts(2)).await;
        assert_eq!(history.started(), [1, 1, 2, 2, 3, 4]);
    });
}

#[test]
fn a_halted_old_lane_keeps_its_users_until_it_is_resumed() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).attempt(1, 1, Act::error());
        let lanes = hashed(4)
            .on_exhausted(OnExhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, lanes);
        let old = producer.dispatcher.lane_of(&mover());
        producer.send(mover()).await;
        quiet().await;
        assert_eq!(producer.dispatcher.stats().halted, 1);
        let change = begin(&producer, 8).await;
        assert_ne!(producer.dispatcher.lane_of(&mover()), old);
        producer.send(mover()).await;
        quiet().await;
        assert_eq!(
            (producer.dispatcher.stats().done, change.is_finished()),
            (0, false)
        );
        producer.dispatcher.lane(&old).skip().unwrap();
        within(change).await.unwrap().unwrap();
        let report = finish(producer, Evidence::new().discarded([1])).await;
        assert_eq!((report.discarded, report.done), (1, 1));
    });
}

/// What waits for an old lane that was halted, before the end or after it, comes back in its order.
#[test]
fn a_drain_hands_back_what_waits_for_a_halted_lane() {
    for halts_late in [false, true] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let script = Script::new(&history).attempt(1, 1, Act::error().waits(&gate));
            let lanes = hashed(4)
                .on_exhausted(OnExhausted::Halt)
                .spawn(scripted(script))
                .unwrap();
            let producer = Producer::new(&history, lanes);
            producer.send(mover()).await;
            quiet().await;
            let change = begin(&producer, 8).await;
            for _ in 0..3 {
                producer.send(mover()).await;
            }
            quiet().await;
            if !halts_late {
                gate.open();
                quiet().await;
            }
            let ending = producer.dispatcher.drain();
            let ending = tokio::spawn(async move { ending.await });
            quiet().await;
            gate.open();
            let report = within(ending).await.unwrap();
            assert_eq!(within(change).await.unwrap(), Err(ResizeError::Closed));
            let back = report
                .returned
                .iter()
                .map(|back| back.message.as_ref().unwrap().id);
            assert_eq!(back.collect::<Vec<_>>(), [1, 2, 3, 4], "{halts_late}");
            judge(&producer, &report, Evidence::new());
        });
    }
}

/// What waits for its old lane, and what met that crowd and went to a sink that refuses it, comes back in
/// the order in which it was accepted.
#[test]
fn what_comes_back_is_in_the_order_of_acceptance() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).attempt(1, 1, Act::ok().waits(&gate));
        let letters = LetterBox::new(&history).refuses(usize::MAX);
        let lanes = hashed(2)
            .lane_capacity(2, Overflow::DeadLetter)
            .overflow_sink(letters.sink(|message: &Message| message.id))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, lanes);
        let mover = users(2, 0, 3, true).next().unwrap();
        producer.send(mover).await;
        quiet().await;
        let _change = begin(&producer, 3).await;
        for _ in 2..=6 {
            producer.send(mover).await;
        }
        quiet().await;
        let report = within(async { producer.dispatcher.abort().await }).await;
        let back: Vec<_> = report
            .returned
            .iter()
            .map(|back| back.message.as_ref().map(|message| message.id))
            .collect();
        assert_eq!(back[1..], [2, 3, 4, 5, 6].map(Some), "{back:?}");
    });
}

#[test]
fn a_paused_old_lane_keeps_its_users_until_it_is_resumed() {
    for emptied_by in ["resume", "skip", "purge"] {
        paused().block_on(async {
            let history = History::new();
            let script = Script::new(&history);
            // Skipping what has not started needs a lane that thinks.
            let lanes = hashed(4)
                .expire_after(Duration::from_secs(3600))
                .spawn(scripted(script))
                .unwrap();
            let producer = Producer::new(&history, lanes);
            let old = producer
                .dispatcher
                .lane(&producer.dispatcher.lane_of(&mover()));
            old.pause();
            producer.send(mover()).await;
            quiet().await;
            let change = begin(&producer, 8).await;
            producer.send(mover()).await;
            quiet().await;
            assert_eq!(
                (producer.dispatcher.stats().done, change.is_finished()),
                (0, false)
            );
            let mut gone = vec![1];
            match emptied_by {
                "resume" => {
                    gone.clear();
                    old.resume().unwrap();
                }
                "skip" => old.skip().unwrap(),
                _ => assert_eq!(old.purge(), 1),
            }
            within(change).await.unwrap().unwrap();
            finish(producer, Evidence::new().discarded(gone)).await;
        });
    }
}

#[test]
fn a_drain_meets_a_paused_old_lane() {
    for busy in [false, true] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
            let producer = Producer::new(&history, hashed(4).spawn(scripted(script)).unwrap());
            let old = producer
                .dispatcher
                .lane(&producer.dispatcher.lane_of(&mover()));
            if busy {
                producer.send(troubled()).await;
                quiet().await;
            }
            old.pause();
            producer.send(mover()).await;
            quiet().await;
            let change = begin(&producer, 8).await;
            producer.send(mover()).await;
            quiet().await;
            let ending = producer.dispatcher.drain();
            let ending = tokio::spawn(async move { ending.await });
            quiet().await;
            gate.open();
            let report = within(ending).await.unwrap();
            assert_eq!(within(change).await.unwrap(), Err(ResizeError::Closed));
            assert_eq!((report.done, report.handed_back), (u64::from(busy), 2));
        });
    }
}

#[test]
fn every_end_in_the_middle_of_a_change_is_honest() {
    for end in ["drain", "close", "abort", "drop", "deadline"] {
        paused().block_on(async {
            let history = History::new();
            let gate = Gate::new();
            let script = Script::new(&history).message(1, Act::ok().waits(&gate));
            let producer = Producer::new(&history, hashed(4).spawn(scripted(script)).unwrap());
            producer.send(troubled()).await;
            quiet().await;
            let change = begin(&producer, 8).await;
            let next = producer.dispatcher.clone();
            let next = tokio::spawn(async move { next.resize(3).await });
            let mut receipts = Vec::new();
            for _ in 0..3 {
                producer.send(mover()).await;
                let (message, sending) = producer.next(mover());
                receipts.push(producer.dispatcher.submit(message).await.unwrap());
                sending.ok();
            }
            quiet().await;
            let ending = match end {
                "close" => producer.dispatcher.close(),
                "abort" => producer.dispatcher.abort(),
                "deadline" => producer.dispatcher.drain().within(SECOND),
                _ => producer.dispatcher.drain(),
            };
            let ending = tokio::spawn(async move { ending.await });
            quiet().await;
            if end != "deadline" {
                gate.open();
            }
            let report = within(ending).await.unwrap();
            let settled = report.done + report.handed_back;
            assert_eq!((settled, report.accepted), (7, 7), "{end}: {report}");
            let drained = matches!(end, "drain" | "drop");
            assert_eq!(
                report.done,
                if drained {
                    7
                } else {
                    u64::from(end == "close")
                },
                "{end}"
            );
            for receipt in receipts {
                let answer = within(receipt).await;
                match drained {
                    true => assert!(answer.is_ok(), "{end}"),
                    false => assert!(
                        matches!(answer, Err(ReceiptError::HandedBack { .. })),
                        "{end}"
                    ),
                }
            }
            let changed = within(change).await.unwrap();
            assert_eq!(changed.is_ok(), drained, "{end}");
            let _ = within(next).await.unwrap();
            assert_eq!(
                producer.dispatcher.resize(2).await,
                Err(ResizeError::Closed)
            );
        });
    }
}

/// The runtime goes away in the middle: receipts are answered, and the change has failed.
#[test]
fn a_runtime_that_is_dropped_ends_a_change() {
    let runtime = threads();
    let (receipts, changed) = runtime.block_on(async {
        let history = History::new();
        let script = Script::new(&history).message(1, Act::never());
        let producer = Producer::new(&history, hashed(4).spawn(scripted(script)).unwrap());
        producer.send(troubled()).await;
        settle_until(|| producer.dispatcher.stats().in_flight == 1).await;
        let lanes = producer.dispatcher.clone();
        // Asked for outside the runtime, which would drop it.
        let changed = std::thread::spawn(move || paused().block_on(lanes.resize(8)));
        settle_until(|| producer.dispatcher.lanes() == 8).await;
        let mut receipts = Vec::new();
        for _ in 0..4 {
            receipts.push(
                producer
                    .dispatcher
                    .submit(producer.next(mover()).0)
                    .await
                    .unwrap(),
            );
        }
        settle_until(|| producer.dispatcher.stats().accepted == 5).await;
        (receipts, changed)
    });
    runtime.shutdown_background();
    // Its threads end when they like: real time.
    threads().block_on(async {
        for receipt in receipts {
            let answer = within(receipt).await;
            assert!(
                matches!(answer, Err(ReceiptError::HandedBack { .. })),
                "{answer:?}"
            );
        }
    });
    assert_eq!(changed.join().unwrap(), Err(ResizeError::Closed));
}

/// Messages that are not to start yet, in both ways, move with their users.
#[test]
fn delayed_messages_and_changes() {
    for delayed in [Delayed::Wait, Delayed::Pass] {
        paused().block_on(async {
            let history = History::new();
            let script = Script::new(&history);
            let lanes = hashed(4).delayed(delayed).spawn(scripted(script)).unwrap();
            let mut ids = Vec::new();
            let later = |n: u64| Message {
                key: Some(mover()),
                id: n,
            };
            for n in 1..=3 {
                lanes.send_when(later(n), SECOND * n as u32).await.unwrap();
                ids.push(n);
            }
            quiet().await;
            let change = {
                let lanes = lanes.clone();
                tokio::spawn(async move { lanes.resize(8).await })
            };
            quiet().await;
            assert_eq!(change.is_finished(), delayed == Delayed::Pass);
            lanes.send_when(later(4), MS * 2500).await.unwrap();
            within(lanes.resize(2)).await.unwrap();
            within(change).await.unwrap().unwrap();
            let report = within(async { lanes.drain().await }).await;
            assert_eq!(report.done, 4);
            let order = if delayed == Delayed::Wait {
                [1, 2, 3, 4]
            } else {
                [1, 2, 4, 3]
            };
            assert_eq!(history.started(), order);
        });
    }
}

/// What waits for its old lane may be too old when its time comes; it is never started then.
#[test]
fn what_waits_may_expire() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).message(1, Act::ok().waits(&gate));
        let lanes = hashed(4)
            .expire_after(SECOND)
            .lane_capacity(10, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, lanes);
        producer.send(troubled()).await;
        quiet().await;
        let change = begin(&producer, 8).await;
        let old = producer.send(mover()).await;
        tokio::time::sleep(SECOND * 2).await;
        producer.send(mover()).await;
        gate.open();
        within(change).await.unwrap().unwrap();
        let report = within(async { producer.dispatcher.drain().await }).await;
        assert_eq!((report.done, report.expired), (2, 1));
        assert!(!history.started().contains(&old));
    });
}
