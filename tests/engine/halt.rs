//! `OnExhausted::Halt`: the lane stops, and an operator decides.

use keylane::error::{Failure, LaneError, ReceiptError};
use keylane::watching::LaneState;
use keylane::{LaneControl, OnExhausted, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, SECOND, ScriptedReceipt, dispatcher, paused, quiet, scripted, threads,
    within,
};
use keylane_testkit::{Act, Evidence, Gate, History, Id, Key, Script, ScriptError};

type MailLane = LaneControl<Key, Message, Id, ScriptError>;

/// Key 1 is halted by message 1; message 2 is behind it.
async fn halted(script: Script, history: &History) -> (Producer, MailLane, ScriptedReceipt) {
    let script = script
        .attempt(1, 1, Act::error())
        .attempt(1, 2, Act::error());
    let orders = dispatcher()
        .retry(Retry::fixed(MS).max_attempts(2))
        .on_exhausted(OnExhausted::Halt)
        .spawn(scripted(script))
        .unwrap();
    let producer = Producer::new(history, orders);
    let receipt = producer.submit(1).await;
    producer.send(1).await;
    tokio::time::sleep(SECOND).await;
    let lane = producer.dispatcher.lane(&1);
    let view = lane.inspect().expect("it is there");
    let LaneState::Halted { attempts, why } = &view.state else {
        panic!("{view:?}")
    };
    assert_eq!((view.depth, *attempts), (2, 2));
    assert_eq!(why, "the handler failed: scripted error of id 1 (Error)");
    assert_eq!((lane.key(), producer.dispatcher.stats().halted), (&1, 1));
    (producer, lane, receipt)
}

#[test]
fn nothing_of_the_key_starts_until_an_operator_decides() {
    paused().block_on(async {
        let history = History::new();
        let (producer, lane, mut receipt) = halted(Script::new(&history), &history).await;
        producer.send_all(1, 5).await;
        producer.send(2).await;
        tokio::time::sleep(1_000 * SECOND).await;
        assert_eq!(lane.inspect().unwrap().depth, 7);
        assert_eq!(producer.dispatcher.stats().done, 1);
        let waited = lane
            .inspect()
            .unwrap()
            .oldest_waiting
            .expect("one is behind the head");
        assert!(waited >= 1_000 * SECOND, "{waited:?}");
        assert!(tokio::time::timeout(SECOND, &mut receipt).await.is_err());
        lane.skip().unwrap();
        producer
            .finish(Evidence::new().max_attempts(2).discarded([1]))
            .await;
    });
}

#[test]
fn resume_tries_the_head_again_from_its_first_attempt() {
    paused().block_on(async {
        let history = History::new();
        // It fails twice, halts, is resumed, fails once more, and is done.
        let tries = std::sync::atomic::AtomicU32::new(0);
        let script = Script::new(&history).choose(move |cue| {
            if cue.id == 1 && tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 3 {
                Act::error()
            } else {
                Act::ok()
            }
        });
        let (producer, lane, receipt) = {
            let orders = dispatcher()
                .retry(Retry::fixed(MS).max_attempts(2))
                .on_exhausted(OnExhausted::Halt)
                .spawn(scripted(script))
                .unwrap();
            let producer = Producer::new(&history, orders);
            let receipt = producer.submit(1).await;
            producer.send(1).await;
            tokio::time::sleep(SECOND).await;
            (producer.clone(), producer.dispatcher.lane(&1), receipt)
        };
        assert_eq!(producer.dispatcher.stats().halted, 1);
        lane.resume().unwrap();
        assert_eq!(producer.dispatcher.stats().halted, 0);
        assert_eq!(receipt.await.unwrap(), 1);
        let attempts: Vec<_> = history
            .records()
            .iter()
            .filter_map(|record| match record.event {
                keylane_testkit::Event::Start { id: 1, attempt, .. } => Some(attempt),
                _ => None,
            })
            .collect();
        assert_eq!(attempts, [1, 2, 1, 2]);
        producer
            .finish(Evidence::new().max_attempts(2).resumed([1]))
            .await;
    });
}

#[test]
fn a_head_that_fails_again_halts_again() {
    paused().block_on(async {
        let history = History::new();
        let (producer, lane, mut receipt) = halted(Script::new(&history), &history).await;
        for _ in 0..5 {
            lane.resume().unwrap();
            tokio::time::sleep(SECOND).await;
            assert_eq!(producer.dispatcher.stats().halted, 1);
            assert_eq!(lane.inspect().unwrap().depth, 2);
            assert!(tokio::time::timeout(MS, &mut receipt).await.is_err());
        }
        lane.skip().unwrap();
        producer
            .finish(Evidence::new().max_attempts(2).resumed([1]).discarded([1]))
            .await;
    });
}

#[test]
fn skip_settles_the_head_as_failed_and_goes_on() {
    paused().block_on(async {
        let history = History::new();
        let (producer, lane, receipt) = halted(Script::new(&history), &history).await;
        lane.skip().unwrap();
        let told = receipt.await.unwrap_err();
        assert_eq!(
            told,
            ReceiptError::Failed(Failure::Error(ScriptError::Error(1)))
        );
        quiet().await;
        assert_eq!(lane.inspect(), None);
        let stats = producer.dispatcher.stats();
        assert_eq!((stats.halted, stats.done, stats.discarded), (0, 1, 1));
        producer
            .finish(Evidence::new().max_attempts(2).discarded([1]))
            .await;
    });
}

#[test]
fn skip_of_the_only_message_removes_the_lane() {
    paused().block_on(async {
        let history = History::new();
        let (producer, lane, _receipt) = halted(Script::new(&history), &history).await;
        lane.skip().unwrap();
        quiet().await;
        assert_eq!(producer.dispatcher.stats().lanes, 0);
        // And the key begins anew.
        producer.send(1).await;
        producer
            .finish(Evidence::new().max_attempts(2).discarded([1]))
            .await;
    });
}

#[test]
fn replace_puts_another_message_in_the_place_of_the_head() {
    paused().block_on(async {
        let history = History::new();
        let (producer, lane, receipt) = halted(Script::new(&history), &history).await;
        // It takes the place of what it replaces, also in the history.
        history.sending(1, 1, 100).ok();
        history.coalesced(1, 100);
        let old = lane
            .replace(Message {
                key: Some(1),
                id: 100,
            })
            .unwrap();
        assert_eq!(
            old,
            Message {
                key: Some(1),
                id: 1
            }
        );
        // The receipt of the old one gets the new one's answer.
        assert_eq!(receipt.await.unwrap(), 100);
        let report = producer.finish(Evidence::new().max_attempts(2)).await;
        assert_eq!((report.accepted, report.done), (2, 2));
    });
}

#[test]
fn what_is_in_flight_cannot_be_decided_on() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history)
            .key(1, Act::ok().waits(&gate))
            .attempt(2, 1, Act::error())
            .key(3, Act::ok().waits(&gate));
        let orders = dispatcher()
            .concurrency(1)
            .retry(Retry::fixed(SECOND))
            .on_exhausted(OnExhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let refused = |key: u64, in_flight: bool| {
            let lane = producer.dispatcher.lane(&key);
            assert_eq!(lane.resume(), Err(LaneError::NotHalted(())), "key {key}");
            let nothing = LaneError::NotHalted(());
            let why = if in_flight {
                LaneError::InFlight(())
            } else {
                nothing
            };
            assert_eq!(lane.skip(), Err(why), "key {key}");
            assert_eq!(lane.retry_now(), Err(why), "key {key}");
            let message = Message {
                key: Some(key),
                id: 99,
            };
            let answer = lane.replace(message.clone()).map_err(LaneError::into_inner);
            assert_eq!(answer, Err(message), "the message comes back");
        };
        // Absent, running, ready.
        refused(9, false);
        producer.send(1).await;
        quiet().await;
        refused(1, true);
        gate.release(1);
        producer.send(2).await;
        quiet().await;
        assert!(matches!(
            producer.dispatcher.inspect(&2).unwrap().state,
            LaneState::Backoff { .. }
        ));
        producer.send(1).await;
        quiet().await;
        producer.send(3).await;
        quiet().await;
        assert_eq!(
            producer.dispatcher.inspect(&3).unwrap().state,
            LaneState::Ready
        );
        refused(3, true);
        gate.open();
        producer.finish(Evidence::new()).await;
        // And after the end.
        let orders = dispatcher()
            .spawn(scripted(Script::new(&History::new())))
            .unwrap();
        orders.drain().await;
        assert!(orders.lane(&1).resume().is_err());
    });
}

#[test]
fn a_halted_lane_is_handed_back_by_a_drain_in_its_order() {
    paused().block_on(async {
        let history = History::new();
        let (producer, lane, receipt) = halted(Script::new(&history), &history).await;
        drop(receipt);
        producer.send_all(1, 2).await;
        let report = producer.dispatcher.drain().await;
        let back: Vec<_> = report
            .returned
            .iter()
            .map(|back| (back.message.as_ref().unwrap().id, back.attempts))
            .collect();
        assert_eq!(back, [(1, 2), (2, 0), (3, 0), (4, 0)]);
        assert!(lane.resume().is_err());
        producer.judge(&report, Evidence::new().max_attempts(2).handed_back(1..=4));
    });
}

/// A lane that halts while the dispatcher drains is not waited for either.
#[test]
fn a_lane_that_halts_during_a_drain_is_handed_back() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).message(1, Act::error().sleeps(SECOND));
        let orders = dispatcher()
            .on_exhausted(OnExhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send_all(1, 3).await;
        producer.send(2).await;
        let report = producer.dispatcher.drain().await;
        assert_eq!((report.done, report.handed_back), (1, 3));
        producer.judge(&report, Evidence::new().handed_back(1..=3));
    });
}

/// A keyless message has no lane to stop.
#[test]
fn a_keyless_message_is_discarded() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::error());
        let orders = dispatcher()
            .on_exhausted(OnExhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let receipt = producer.submit(None).await;
        assert!(matches!(receipt.await, Err(ReceiptError::Failed(_))));
        assert_eq!(producer.dispatcher.stats().halted, 0);
        let report = producer.dispatcher.drain().await;
        assert_eq!(report.discarded, 1);
    });
}

/// Decisions race with each other and with the handlers; each halt is decided once.
#[test]
fn many_operators_decide_each_halt_once() {
    threads().block_on(async {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::error().yields(1));
        let orders = dispatcher()
            .on_exhausted(OnExhausted::Halt)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let ids = producer.send_all(1, 200).await;
        let mut operators = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let producer = producer.clone();
            operators.spawn(async move {
                let mut skipped = 0_u64;
                while producer.dispatcher.stats().discarded < 200 {
                    skipped += u64::from(producer.dispatcher.lane(&1).skip().is_ok());
                    tokio::task::yield_now().await;
                }
                skipped
            });
        }
        let skipped: u64 = within(operators.join_all()).await.iter().sum();
        assert_eq!(skipped, 200);
        producer.finish(Evidence::new().discarded(ids)).await;
    });
}

/// In its lane it would run beside the messages of its own key.
#[test]
fn replace_refuses_a_message_of_another_key() {
    paused().block_on(async {
        let history = History::new();
        let (producer, lane, receipt) = halted(Script::new(&history), &history).await;
        let (stranger, sending) = producer.next(2);
        let refused = lane.replace(stranger).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the key of the message is not the key of this lane: give it one with the same key"
        );
        assert!(matches!(refused, LaneError::OtherKey(_)));
        assert_eq!(refused.into_inner().key, Some(2));
        sending.fail();
        assert_eq!(producer.dispatcher.stats().halted, 1);
        lane.skip().unwrap();
        assert!(matches!(receipt.await, Err(ReceiptError::Failed(_))));
        producer
            .finish(Evidence::new().max_attempts(2).discarded([1]))
            .await;
    });
}

/// A replacement is as large as it is, and not as large as what it replaces.
#[test]
fn replace_weighs_the_new_message() {
    // Counted apart and counted as load.
    for stalled in [10, 0] {
        paused().block_on(async {
            // A message is as large as its id. Those of 30 bytes fail.
            let script = Script::new(&History::new()).message(30, Act::error());
            let orders = dispatcher()
                .capacity_bytes(100, |message: &Message| message.id as usize)
                .stalled_capacity(stalled)
                .on_exhausted(OnExhausted::Halt)
                .spawn(scripted(script))
                .unwrap();
            let lane = orders.lane(&1);
            for (new, fits) in [(101, false), (50, true), (10, true), (100, true)] {
                orders.send(Message::new(1, 30)).await.unwrap();
                quiet().await;
                assert_eq!(orders.stats().halted, 1);
                match lane.replace(Message::new(1, new)) {
                    Ok(old) => assert_eq!((old, fits), (Message::new(1, 30), true)),
                    Err(LaneError::TooLarge(refused)) => {
                        assert_eq!((refused, fits), (Message::new(1, 101), false));
                        lane.skip().unwrap();
                    }
                    Err(other) => panic!("{other}"),
                }
                quiet().await;
                // All of it is free again: no byte was lost, and none came from nowhere.
                orders.try_send(Message::new(2, 100)).unwrap();
                assert!(orders.try_send(Message::new(3, 1)).is_err());
                quiet().await;
            }
        });
    }
}
