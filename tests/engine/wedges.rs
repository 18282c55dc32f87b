//! G8: panics, time-outs, cancelled callers and lost wake-ups leave no lane stuck.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use keylane::{Dispatcher, OnExhausted, Overflow, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, Random, SECOND, assert_nothing_left, dispatcher, on_both, paused, quiet,
    scripted, threads, within,
};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Rule, Script};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::boxed;

/// How an attempt can go wrong.
fn mishaps() -> [(&'static str, Act); 9] {
    [
        ("an error at once", Act::error()),
        ("an error later", Act::error().yields(2)),
        ("a panic at the first poll", Act::panic_at_poll(1)),
        ("a panic at a later poll", Act::panic_at_poll(3)),
        ("a time-out", Act::never()),
        (
            "a time-out, and a panic in drop",
            Act::never().panics_in_drop(),
        ),
        ("an answer, and a panic in drop", Act::ok().panics_in_drop()),
        (
            "a late answer, and a panic in drop",
            Act::ok().sleeps(MS).panics_in_drop(),
        ),
        (
            "an error, and a panic in drop",
            Act::error().yields(1).panics_in_drop(),
        ),
    ]
}

/// What is done about it in the end.
#[derive(Clone, Copy, Debug)]
enum Policy {
    Discard,
    RetryAndDiscard,
    DeadLetter,
    RetryAndDeadLetter,
}

/// Each third message of every key goes wrong, and the keys go on.
async fn go_on_after(mishap: Act, policy: Policy) {
    let history = History::new();
    let retries = matches!(policy, Policy::RetryAndDiscard | Policy::RetryAndDeadLetter);
    let letters = LetterBox::new(&history).refuses(1);
    let script = Script::new(&history).choose(move |cue| match cue.id % 3 {
        1 => mishap.clone(),
        2 => Act::ok(),
        _ => Act::ok().yields(1),
    });
    let max_attempts = if retries { 2 } else { 1 };
    let orders = dispatcher()
        .concurrency(4)
        .attempt_timeout(10 * MS)
        .retry(Retry::fixed(MS).max_attempts(max_attempts))
        .on_exhausted(match policy {
            Policy::Discard | Policy::RetryAndDiscard => OnExhausted::Discard,
            _ => OnExhausted::dead_letter(letters.sink(|message: &Message| message.id)),
        })
        .spawn(scripted(script))
        .unwrap();
    let producer = Producer::new(&history, orders);
    let mut receipts = Vec::new();
    for n in 0..24 {
        receipts.push(producer.submit((n < 21).then_some(n % 4)).await);
    }
    let mut discarded = Vec::new();
    for (n, receipt) in receipts.into_iter().enumerate() {
        if let Err(keylane::error::ReceiptError::Failed(_)) = within(receipt).await {
            discarded.push(n as u64 + 1);
        }
    }
    let report = producer.dispatcher.drain().await;
    let evidence = Evidence::new()
        .concurrency(4)
        .backoff(SECOND)
        .faults(Instant::now(), 60 * SECOND)
        .max_attempts(max_attempts)
        .discarded(discarded);
    let verdict = producer.judge(&report, evidence);
    verdict.assert_judged(&[Rule::Liveness, Rule::NoLoss, Rule::Exclusion, Rule::Order]);
}

#[test]
fn a_key_goes_on_after_every_mishap_and_policy() {
    for (name, mishap) in mishaps() {
        for policy in [
            Policy::Discard,
            Policy::RetryAndDiscard,
            Policy::DeadLetter,
            Policy::RetryAndDeadLetter,
        ] {
            println!("{name}, {policy:?}");
            on_both(|| go_on_after(mishap.clone(), policy));
        }
    }
}

/// Senders come and give up at every point at which they can wait, in the capacity and at a gate.
#[test]
fn callers_that_give_up_leave_room_for_the_others() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| Act::ok().yields((cue.id % 3) as u32));
        let orders = dispatcher()
            .concurrency(2)
            .capacity(6)
            .lane_capacity(2, Overflow::Wait)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let mut senders = tokio::task::JoinSet::new();
        for sender in 0..6 {
            let producer = producer.clone();
            senders.spawn(async move {
                let mut dice = Random::new(sender);
                for _ in 0..100 {
                    let (message, sending) = producer.next(sender % 2 * 10 + sender / 2);
                    let polls = dice.below(4);
                    let mut send = pin!(producer.dispatcher.send(message));
                    let mut polled = 0;
                    let answer = poll_fn(|cx| match send.as_mut().poll(cx) {
                        Poll::Ready(answer) => Poll::Ready(Some(answer)),
                        Poll::Pending if polled == polls => Poll::Ready(None),
                        Poll::Pending => {
                            polled += 1;
                            cx.waker().wake_by_ref();
                            Poll::Pending
                        }
                    })
                    .await;
                    match answer {
                        Some(answer) => {
                            answer.unwrap();
                            sending.ok();
                        }
                        None => sending.fail(),
                    }
                }
            });
        }
        while let Some(sender) = within(senders.join_next()).await {
            sender.unwrap();
        }
        // Not `lanes`: there are none either while the last messages are still on their way to them.
        within(async {
            while producer.dispatcher.stats().capacity_left < 6 {
                quiet().await;
            }
        })
        .await;
        producer.finish(Evidence::new()).await;
    });
}

/// Runners become holders, come back, find pollers enough, rest and are summoned again, all the
/// time and on two threads: a runner that takes a turn without being a poller breaks the count of them.
#[test]
fn lanes_by_the_thousand_whose_handlers_wait() {
    const KEYS: u64 = 5_000;
    const EACH: u64 = 4;
    for concurrency in [3, 64, 2_000] {
        threads().block_on(async {
            let dispatcher = Dispatcher::builder(|message: &u64| message % KEYS)
                .concurrency(concurrency)
                .capacity(1_000)
                .spawn(boxed(|_, message| async move {
                    for _ in 0..message / 7 % 4 {
                        tokio::task::yield_now().await;
                    }
                    Ok(message)
                }))
                .unwrap();
            let sender = dispatcher.clone();
            let sending = tokio::spawn(async move {
                for message in 0..KEYS * EACH {
                    sender.send(message).await.unwrap();
                }
            });
            within(sending).await.unwrap();
            let report = within(dispatcher.drain().into_future()).await;
            assert_eq!(report.done, KEYS * EACH, "{report}");
            assert_nothing_left(&dispatcher);
        });
    }
}

/// A receipt that was dropped is no reason to stop.
#[test]
fn receipts_that_are_dropped_change_nothing() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let producer = Producer::new(&history, dispatcher().spawn(scripted(script)).unwrap());
        // Before it starts, while it runs, and kept.
        drop(producer.submit(1).await);
        let running = producer.submit(2).await;
        let kept = producer.submit(1).await;
        gate.arrivals(2).await;
        drop(running);
        gate.open();
        assert_eq!(kept.await.unwrap(), 3);
        let report = producer.finish(Evidence::new()).await;
        assert_eq!(report.done, 3);
    });
}

/// A sender that was woken and found that another had taken the room waited without having
/// registered again.
#[test]
fn a_woken_sender_that_finds_no_room_waits_again() {
    on_both(|| async {
        for overflow in [None, Some(Overflow::Wait)] {
            let history = History::new();
            let script = Script::new(&history).choose(|cue| Act::ok().yields((cue.id % 2) as u32));
            let builder = match overflow {
                // Short of room in all …
                None => dispatcher().capacity(1),
                // … or short of room in one lane.
                Some(overflow) => dispatcher().lane_capacity(1, overflow),
            };
            let producer = Producer::new(&history, builder.spawn(scripted(script)).unwrap());
            let mut senders = JoinSet::new();
            for sender in 0..8 {
                let producer = producer.clone();
                senders.spawn(async move {
                    for n in 0..100 {
                        // Half of them take room without waiting in the queue for it.
                        let key = if overflow.is_some() { 7 } else { sender };
                        let message = Message {
                            key: Some(key),
                            id: sender * 1_000 + n,
                        };
                        if sender % 2 == 0 {
                            producer.dispatcher.send(message).await.unwrap();
                        } else {
                            while producer.dispatcher.try_send(message.clone()).is_err() {
                                tokio::task::yield_now().await;
                            }
                        }
                    }
                });
            }
            while let Some(sender) = within(senders.join_next()).await {
                sender.unwrap();
            }
            let report = within(async { producer.dispatcher.drain().await }).await;
            assert_eq!(report.done, 800);
        }
    });
}
