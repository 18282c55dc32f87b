//! G2: first attempts of one key start in the order of acceptance; a retry runs before anything
//! behind it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use futures::{SinkExt, StreamExt, stream};
use keylane::error::TrySendError;
use keylane::{Dispatcher, Retry};
use keylane_testkit::scenario::{
    MS, Message, Producer, Random, SECOND, dispatcher, on_both, paused, quiet, scripted, threads,
};
use keylane_testkit::{Act, Evidence, Gate, History, Script};
use tokio::runtime;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Also where a message fails once or twice, and the next ones of its key wait for it.
#[test]
fn first_attempts_start_in_the_order_of_acceptance() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| {
            let mut dice = Random::new(cue.id);
            let slow = dice.below(4) as u32;
            match dice.below(10) {
                0 if cue.attempt < 3 => Act::error().yields(slow),
                1..4 => Act::ok().sleeps(MS * slow),
                4..7 => Act::ok().yields(slow),
                _ => Act::ok(),
            }
        });
        let orders = dispatcher()
            .concurrency(8)
            .capacity(32)
            .lane_capacity(5, keylane::Overflow::Wait)
            .quantum(2)
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let shared = Arc::new(Mutex::new(()));
        let mut senders = JoinSet::new();
        for sender in 0..4 {
            let (producer, shared) = (producer.clone(), Arc::clone(&shared));
            senders.spawn(async move {
                for n in 0..120 {
                    if n % 3 == 0 {
                        // One key for all: the sender that holds the lock is the next in order.
                        let _turn = shared.lock().await;
                        producer.send(1_000).await;
                    } else {
                        producer.send(sender * 10 + n % 4).await;
                    }
                }
            });
        }
        while let Some(sender) = senders.join_next().await {
            sender.unwrap();
        }
        let report = producer.finish(Evidence::new().max_attempts(5)).await;
        assert_eq!(report.done, 480);
    });
}

/// Senders that race for a key have no order among them, but each has its own.
#[test]
fn each_of_many_senders_of_one_key_keeps_its_own_order() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| Act::ok().yields((cue.id % 3) as u32));
        let orders = dispatcher().capacity(8).spawn(scripted(script)).unwrap();
        let mut senders = JoinSet::new();
        for sender in 0..4 {
            let orders = orders.clone();
            senders.spawn(async move {
                for n in 0..100 {
                    let id = sender * 1_000 + n;
                    orders.send(Message::new(7, id)).await.unwrap();
                }
            });
        }
        while let Some(sender) = senders.join_next().await {
            sender.unwrap();
        }
        assert_eq!(orders.drain().await.done, 400);
        let mut last = HashMap::new();
        for id in history.started() {
            let (sender, n) = (id / 1_000, id % 1_000);
            let before = last.insert(sender, n);
            assert_eq!(
                n,
                before.map_or(0, |before| before + 1),
                "of sender {sender}"
            );
        }
        assert_eq!(last.len(), 4);
    });
}

#[test]
fn a_retry_runs_before_anything_behind_it() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history)
            .attempt(1, 1, Act::error().yields(1))
            .attempt(1, 2, Act::panic())
            .attempt(3, 1, Act::error());
        let orders = dispatcher()
            .retry(Retry::fixed(SECOND).max_attempts(3))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        producer.send_all(1, 4).await;
        // Arrivals during the wait: they may not take the place of the one that waits.
        tokio::time::sleep(SECOND / 2).await;
        producer.send_all(1, 2).await;
        tokio::time::sleep(SECOND).await;
        producer.send(1).await;
        producer.finish(Evidence::new().max_attempts(3)).await;
        assert_eq!(history.started(), [1, 1, 1, 2, 3, 3, 4, 5, 6, 7]);
    });
}

/// The dispatch path looked at the worker before the backlog: a worker that was free again took the
/// new message, and the parked one came after it.
#[test]
fn a_new_message_does_not_overtake_a_parked_one() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        let producer = Producer::new(&history, dispatcher().spawn(scripted(script)).unwrap());
        for round in 0..20 {
            producer.send_all(1, 2).await;
            gate.arrivals(1).await;
            // The key becomes free, and before the dispatcher has noticed the next message is there.
            gate.release(1);
            producer.try_send(1).unwrap();
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            producer.try_send(1).unwrap();
            gate.release(3);
            quiet().await;
        }
        assert!(history.started().is_sorted());
        producer.finish(Evidence::new()).await;
    });
}

/// A key that had just been freed for a parked message was taken by one that arrived that moment.
#[test]
fn a_freed_key_is_not_stolen_by_a_new_arrival() {
    threads().block_on(async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| Act::ok().yields((cue.id % 2) as u32));
        let orders = dispatcher()
            .concurrency(8)
            .quantum(1)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for n in 0..5_000 {
            producer.send(n % 2).await;
            if n % 3 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let report = producer.finish(Evidence::new()).await;
        assert_eq!(report.done, 5_000);
    });
}

/// A batch taken from the channel, or prefetched, was started in another order.
#[test]
fn a_batch_keeps_its_order() {
    paused().block_on(async {
        let history = History::new();
        let producer = Producer::new(
            &history,
            dispatcher().spawn(scripted(Script::new(&history))).unwrap(),
        );
        // All of it is in the channel before the dispatcher sees the first.
        for n in 0..1_000 {
            producer.try_send(n % 3).unwrap();
        }
        producer.finish(Evidence::new()).await;
    });
}

/// One sender that uses every way to send, on two keys.
#[test]
fn however_one_sender_sends_its_messages_they_stay_in_order() {
    for striped in [false, true] {
        let started = Arc::new(std::sync::Mutex::new(Vec::new()));
        let handled = Arc::clone(&started);
        // With two stripes.
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let orders = Dispatcher::builder(|number: &u64| number % 2)
                .striped_intake(striped)
                .capacity(64)
                .lane_capacity(1_000, keylane::Overflow::Wait)
                .spawn(move |number: u64| {
                    handled.lock().unwrap().push(number);
                    async move {
                        if number.is_multiple_of(5) {
                            tokio::task::yield_now().await;
                        }
                        Ok::<_, Infallible>(number)
                    }
                })
                .unwrap();
            let mut dice = Random::new(3);
            let mut sink = orders.sink();
            let (mut number, mut receipts) = (0, Vec::new());
            while number < 20_000 {
                match dice.below(7) {
                    0 => orders.send(number).await.unwrap(),
                    1 => match orders.try_send(number) {
                        Err(TrySendError::Full(_)) => continue,
                        sent => sent.unwrap(),
                    },
                    2 => receipts.push((number, orders.submit(number).await.unwrap())),
                    3 => orders.reserve().await.unwrap().send(number).unwrap(),
                    // The others of its key wait behind it.
                    4 => orders.send_when(number, MS / 4).await.unwrap(),
                    5 => {
                        let more = stream::iter(number..number + 3).map(Ok);
                        sink.send_all(&mut { more }).await.unwrap();
                        number += 2;
                    }
                    _ => match orders.try_submit(number) {
                        Err(TrySendError::Full(_)) => continue,
                        sent => receipts.push((number, sent.unwrap())),
                    },
                }
                number += 1;
            }
            for (number, receipt) in receipts {
                assert_eq!(receipt.await.unwrap(), number);
            }
            drop(sink);
            let report = orders.drain().await;
            assert_eq!((report.accepted, report.done), (number, number));
        });
        let started = std::mem::take(&mut *started.lock().unwrap());
        for key in 0..2 {
            let of_key: Vec<u64> = started.iter().copied().filter(|n| n % 2 == key).collect();
            assert!(of_key.is_sorted(), "striped: {striped}, key {key}");
        }
    }
}
