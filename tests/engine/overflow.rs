//! `Overflow`: what a full lane does, to its own key and to no other.

use futures::FutureExt;
use keylane::Overflow;
use keylane::error::{Failure, ReceiptError, SendError, TrySendError};
use keylane_testkit::scenario::{
    Message, Producer, SECOND, dispatcher, on_both, paused, quiet, scripted, settle_until, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, Id, LetterBox, Rule, Script};
use tokio::task::JoinSet;

struct Full {
    producer: Producer,
    gate: Gate,
    letters: LetterBox,
}

/// Key 1 is held at its first message, and has as many as it may.
async fn full(capacity: usize, overflow: Overflow) -> Full {
    let history = History::new();
    let gate = Gate::new();
    let letters = LetterBox::new(&history);
    let script = Script::new(&history).key(1, Act::ok().waits(&gate));
    let orders = dispatcher()
        .lane_capacity(capacity, overflow)
        .overflow_sink(letters.sink(|message: &Message| message.id))
        .spawn(scripted(script))
        .unwrap();
    let producer = Producer::new(&history, orders);
    for _ in 0..capacity {
        producer.send(1).await;
        quiet().await;
    }
    let is_full = || {
        let view = producer.dispatcher.inspect(&1);
        view.is_some_and(|view| view.full && view.depth == capacity)
    };
    settle_until(is_full).await;
    Full {
        producer,
        gate,
        letters,
    }
}

#[test]
fn wait_lets_senders_in_one_by_one_in_the_order_in_which_they_came() {
    for capacity in [2, 5] {
        paused().block_on(async {
            let Full { producer, gate, .. } = full(capacity, Overflow::Wait).await;
            assert_eq!(producer.dispatcher.stats().full_lanes, 1);
            let mut senders = Vec::new();
            for _ in 0..10 {
                let producer = producer.clone();
                senders.push(tokio::spawn(async move { producer.send(1).await }));
                quiet().await;
            }
            // Others are not concerned.
            producer.send(2).await;
            quiet().await;
            assert_eq!(producer.dispatcher.stats().done, 1);
            for settled in 1..=10 {
                assert_eq!(
                    senders.iter().filter(|sender| sender.is_finished()).count(),
                    settled - 1
                );
                gate.release(1);
                quiet().await;
                assert_eq!(producer.dispatcher.inspect(&1).unwrap().depth, capacity);
            }
            assert!(senders.iter().all(|sender| sender.is_finished()));
            gate.open();
            let report = producer.finish(Evidence::new()).await;
            assert_eq!(report.done, 11 + capacity as u64);
        });
    }
}

/// A lane of one is gone when its message is done, and its gate with it: no sender stays behind.
#[test]
fn wait_at_a_lane_of_one_leaves_no_sender_behind() {
    paused().block_on(async {
        let Full { producer, gate, .. } = full(1, Overflow::Wait).await;
        let mut senders = JoinSet::new();
        for _ in 0..10 {
            let producer = producer.clone();
            senders.spawn(async move { producer.send(1).await });
            quiet().await;
        }
        assert!(senders.try_join_next().is_none());
        gate.open();
        senders.join_all().await;
        producer.finish(Evidence::new()).await;
    });
}

/// Behind the gate there is the capacity to wait for: who gives up there gives back its place.
#[test]
fn wait_with_a_sender_that_gives_up_behind_the_gate_lets_the_next_one_in() {
    paused().block_on(async {
        let history = History::new();
        let (one, others) = (Gate::new(), Gate::new());
        let script = Script::new(&history)
            .key(1, Act::ok().waits(&one))
            .otherwise(Act::ok().waits(&others));
        let orders = dispatcher()
            .capacity(3)
            .lane_capacity(2, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for key in [1, 1, 2] {
            producer.send(key).await;
        }
        quiet().await;
        // All room is taken, and the lane of key 1 is full.
        let (other, first, second) = (producer.next(3), producer.next(1), producer.next(1));
        let mut beside = Box::pin(producer.dispatcher.send(other.0));
        let mut waits = Box::pin(producer.dispatcher.send(first.0));
        let mut behind = Box::pin(producer.dispatcher.send(second.0));
        assert!((&mut beside).now_or_never().is_none());
        assert!((&mut waits).now_or_never().is_none());
        assert!((&mut behind).now_or_never().is_none());
        one.release(1);
        quiet().await;
        // The room goes to who waited for it first; the way into the lane goes to `waits`.
        within(beside).await.unwrap();
        other.1.ok();
        assert!((&mut waits).now_or_never().is_none());
        drop(waits);
        first.1.fail();
        assert!((&mut behind).now_or_never().is_none());
        others.release(1);
        // Nothing of key 1 settles before it is in.
        within(behind).await.unwrap();
        second.1.ok();
        one.open();
        others.open();
        producer.finish(Evidence::new()).await;
    });
}

#[test]
fn wait_with_a_sender_that_gives_up_lets_the_next_one_in() {
    paused().block_on(async {
        let Full { producer, gate, .. } = full(2, Overflow::Wait).await;
        let (first, second) = (producer.next(1), producer.next(1));
        let mut waits = Box::pin(producer.dispatcher.send(first.0));
        let mut behind = Box::pin(producer.dispatcher.send(second.0));
        assert!((&mut waits).now_or_never().is_none());
        assert!((&mut behind).now_or_never().is_none());
        gate.release(1);
        quiet().await;
        // It was let in, and goes away without having looked.
        drop(waits);
        first.1.fail();
        within(behind).await.unwrap();
        second.1.ok();
        gate.open();
        producer.finish(Evidence::new()).await;
    });
}

#[test]
fn wait_says_lane_full_to_those_who_do_not_wait() {
    paused().block_on(async {
        let Full { producer, gate, .. } = full(3, Overflow::Wait).await;
        for _ in 0..3 {
            let refused = producer.try_send(1).unwrap_err();
            assert!(matches!(refused, TrySendError::LaneFull(_)), "{refused:?}");
            let (message, sending) = producer.next(1);
            let permit = producer.dispatcher.reserve().await.unwrap();
            let refused = permit.send(message.clone());
            assert_eq!(refused, Err(TrySendError::LaneFull(message)));
            sending.fail();
        }
        assert_eq!(
            producer.dispatcher.stats().capacity_left,
            65_536 - 3,
            "no room was kept"
        );
        gate.release(1);
        quiet().await;
        producer.try_send(1).unwrap();
        gate.open();
        producer.finish(Evidence::new()).await;
    });
}

#[test]
fn reject_gives_the_message_back_until_there_is_room() {
    for capacity in [1, 2, 5] {
        paused().block_on(async {
            let Full { producer, gate, .. } = full(capacity, Overflow::Reject).await;
            for round in 0..5 {
                let (message, sending) = producer.next(1);
                assert_eq!(
                    producer.dispatcher.send(message.clone()).await,
                    Err(SendError::LaneFull(message))
                );
                sending.fail();
                let (message, sending) = producer.next(1);
                let refused = producer.dispatcher.submit(message).await.err().unwrap();
                assert!(matches!(refused, SendError::LaneFull(_)));
                sending.fail();
                let refused = producer.try_send(1).unwrap_err();
                assert!(
                    matches!(refused, TrySendError::LaneFull(_)),
                    "round {round}"
                );
                producer.send(2).await;
                gate.release(1);
                quiet().await;
                producer.send(1).await;
                quiet().await;
                assert_eq!(producer.dispatcher.inspect(&1).unwrap().depth, capacity);
            }
            gate.open();
            let report = producer.finish(Evidence::new()).await;
            assert_eq!(
                report.discarded, 0,
                "nothing that was accepted was given up"
            );
        });
    }
}

#[test]
fn drop_oldest_gives_up_the_oldest_that_waits_and_never_the_head() {
    paused().block_on(async {
        let Full { producer, gate, .. } = full(3, Overflow::DropOldest).await;
        let mut receipts = Vec::new();
        for _ in 0..6 {
            receipts.push(producer.submit(1).await);
            quiet().await;
            assert_eq!(producer.dispatcher.inspect(&1).unwrap().depth, 3);
        }
        gate.open();
        let mut answers = Vec::new();
        for receipt in receipts {
            answers.push(match receipt.await {
                Ok(id) => Ok(id),
                Err(ReceiptError::Dropped(message)) => Err(message.id),
                Err(other) => panic!("{other}"),
            });
        }
        assert_eq!(answers, [Err(4), Err(5), Err(6), Err(7), Ok(8), Ok(9)]);
        let stats = producer.dispatcher.stats();
        assert_eq!((stats.overflowed, stats.done, stats.discarded), (6, 3, 6));
        // 2 and 3 were given up for 4 and 5, before those were given up themselves.
        producer.finish(Evidence::new().discarded(2..=7)).await;
    });
}

/// There is nothing behind the head to give up but the new one.
#[test]
fn drop_oldest_in_a_lane_of_one_gives_up_the_new_one() {
    paused().block_on(async {
        let Full { producer, gate, .. } = full(1, Overflow::DropOldest).await;
        let receipt = producer.submit(1).await;
        let told = receipt.await.unwrap_err();
        assert_eq!(
            told,
            ReceiptError::Dropped(Message {
                key: Some(1),
                id: 2
            })
        );
        gate.open();
        quiet().await;
        producer.send(1).await;
        let report = producer.finish(Evidence::new().discarded([2])).await;
        assert_eq!((report.done, report.discarded), (2, 1));
    });
}

#[test]
fn dead_letter_brings_the_new_one_to_the_sink_while_the_lane_goes_on() {
    for capacity in [1, 3] {
        paused().block_on(async {
            let Full {
                producer,
                gate,
                letters,
            } = full(capacity, Overflow::DeadLetter).await;
            let receipt = producer.submit(1).await;
            let told = receipt.await.unwrap_err();
            assert_eq!(told, ReceiptError::DeadLettered(Failure::LaneFull));
            let too_many = capacity as Id + 1;
            let letter = &letters.letters()[0];
            assert_eq!((letter.id, letter.attempts), (too_many, 0));
            assert_eq!(letter.failure, "the lane of the key was full");
            assert_eq!(producer.dispatcher.inspect(&1).unwrap().depth, capacity);
            assert_eq!(producer.dispatcher.stats().overflowed, 1);
            gate.open();
            quiet().await;
            producer.send(1).await;
            let evidence = Evidence::new().overflow_letters().max_attempts(1);
            let report = producer.finish(evidence).await;
            assert_eq!(
                (report.done, report.dead_lettered),
                (capacity as u64 + 1, 1)
            );
        });
    }
}

/// The bounds that are exact, under a flood.
#[test]
fn drop_oldest_and_dead_letter_never_exceed_the_limit() {
    on_both(|| async {
        for overflow in [Overflow::DropOldest, Overflow::DeadLetter] {
            let Full {
                producer,
                gate,
                letters,
            } = full(4, overflow).await;
            let mut flood = JoinSet::new();
            for _ in 0..4 {
                let dispatcher = producer.dispatcher.clone();
                flood.spawn(async move {
                    let mut receipts = Vec::new();
                    for id in 100..200 {
                        receipts.push(
                            dispatcher
                                .submit(Message { key: Some(1), id })
                                .await
                                .unwrap(),
                        );
                    }
                    receipts
                });
            }
            let mut receipts = Vec::new();
            while let Some(sent) = flood.join_next().await {
                let depth = producer.dispatcher.inspect(&1).unwrap().depth;
                assert!(depth <= 4, "{depth}");
                receipts.extend(sent.unwrap());
            }
            settle_until(|| {
                producer.dispatcher.stats().overflowed
                    >= if overflow == Overflow::DropOldest {
                        397
                    } else {
                        400
                    }
            })
            .await;
            gate.open();
            let mut done = 0;
            for receipt in receipts {
                match within(receipt).await {
                    Ok(_) => done += 1,
                    Err(ReceiptError::Dropped(_)) => assert_eq!(overflow, Overflow::DropOldest),
                    Err(ReceiptError::DeadLettered(_)) => {
                        assert_eq!(overflow, Overflow::DeadLetter);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            // The newest three are behind the head, or none could come in.
            assert_eq!(
                done,
                if overflow == Overflow::DropOldest {
                    3
                } else {
                    0
                }
            );
            let report = within(async { producer.dispatcher.drain().await }).await;
            assert_eq!(report.accepted, 404);
            assert_eq!(report.dead_lettered, letters.letters().len() as u64);
        }
    });
}

/// A gate is left by `close` too, at once and with the message.
#[test]
fn senders_at_a_gate_are_let_go_by_every_ending() {
    for end in 0..4 {
        paused().block_on(async {
            let Full { producer, gate, .. } = full(2, Overflow::Wait).await;
            let mut senders = JoinSet::new();
            for id in 100..105 {
                let dispatcher = producer.dispatcher.clone();
                senders.spawn(async move { dispatcher.send(Message { key: Some(1), id }).await });
            }
            quiet().await;
            let dispatcher = producer.dispatcher.clone();
            let ending = tokio::spawn(async move {
                match end {
                    0 => dispatcher.drain().await,
                    1 => dispatcher.close().await,
                    2 => dispatcher.abort().await,
                    _ => dispatcher.drain().within(SECOND).await,
                }
            });
            for answer in within(senders.join_all()).await {
                assert!(matches!(answer, Err(SendError::Closed(_))), "{answer:?}");
            }
            gate.open();
            let report = within(ending).await.unwrap();
            assert_eq!(report.accepted, 2);
        });
    }
}

/// Every policy under load keeps the order of what it lets through.
#[test]
fn what_is_let_through_stays_in_order() {
    for overflow in [
        Overflow::Wait,
        Overflow::Reject,
        Overflow::DropOldest,
        Overflow::DeadLetter,
    ] {
        on_both(|| async {
            let history = History::new();
            let letters = LetterBox::new(&history);
            let script = Script::new(&history).choose(|cue| Act::ok().yields((cue.id % 3) as u32));
            let orders = dispatcher()
                .concurrency(2)
                .lane_capacity(2, overflow)
                .overflow_sink(letters.sink(|message: &Message| message.id))
                .spawn(scripted(script))
                .unwrap();
            let producer = Producer::new(&history, orders);
            let mut receipts = Vec::new();
            for n in 0..400 {
                let (message, sending) = producer.next(n % 3);
                match producer.dispatcher.submit(message).await {
                    Ok(receipt) => {
                        receipts.push((n + 1, receipt));
                        sending.ok();
                    }
                    Err(_) => sending.fail(),
                }
                if n % 5 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            let mut dropped = Vec::new();
            for (id, receipt) in receipts {
                if let Err(ReceiptError::Dropped(_)) = within(receipt).await {
                    dropped.push(id);
                }
            }
            let report = within(async { producer.dispatcher.drain().await }).await;
            let evidence = Evidence::new()
                .overflow_letters()
                .max_attempts(1)
                .discarded(dropped);
            let verdict = producer.judge(&report, evidence);
            verdict.assert_judged(&[Rule::Order, Rule::Exclusion, Rule::NoLoss, Rule::Drain]);
        });
    }
}
