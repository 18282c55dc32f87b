//! An operator controls one key, messages are delayed, and batches fail, while others send.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_rt as rt;
use shuttle_tokio::task::JoinHandle;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, After, Hasher, Message, Orders, message, task};
use crate::discipline::Delayed;
use crate::{Dispatcher, Retry};

const WAIT: Duration = Duration::from_millis(5);

/// Pausing, starting, resuming and shutting down one key at the same time.
pub(super) async fn pause_meets_the_start_and_the_end() {
    let witness = Witness::new();
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .capacity(4)
        .concurrency(2);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let mut senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 2, &[20]),
    ];
    for _ in 0..2 {
        let lane = orders.lane(&1);
        senders.push(task(async move {
            for _ in 0..2 {
                lane.pause();
                pause().await;
                let _ = lane.resume();
            }
            if rt::one_in(2) {
                lane.pause();
            }
        }));
    }
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}

/// The lane is purged and paused while its head finishes, fails, or waits.
pub(super) async fn purge_meets_the_finish() {
    let witness = Witness::with(2, After::Discard);
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .retry(Retry::fixed(WAIT).max_attempts(2))
        .capacity(3);
    let orders = witness.spawn(builder, |message, attempt| {
        match (message.number, attempt) {
            (10, 1) => Act::Fail,
            _ => Act::Succeed,
        }
    });
    let mut senders = vec![
        witness.submit(&orders, 1, &[10, 11, 12]),
        witness.send(&orders, 1, &[20]),
    ];
    witness.operate(1);
    let lane = orders.lane(&1);
    senders.push(task(async move {
        for _ in 0..3 {
            if rt::one_in(3) {
                lane.pause();
            }
            let _ = lane.purge();
            pause().await;
            let _ = lane.resume();
        }
    }));
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}

/// A head in backoff is skipped, or retried at once, while its timer fires.
pub(super) async fn skip_meets_the_timer() {
    let witness = Witness::with(3, After::Discard);
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .retry(Retry::fixed(WAIT).max_attempts(3));
    let orders = witness.spawn(builder, |message, _| match message.number {
        10 => Act::Fail,
        _ => Act::Succeed,
    });
    let mut senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 1, &[20]),
    ];
    witness.operate(1);
    let lane = orders.lane(&1);
    senders.push(task(async move {
        for _ in 0..3 {
            pause().await;
            let _ = match rt::one_in(2) {
                true => lane.skip(),
                false => lane.retry_now(),
            };
        }
    }));
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}

fn delayed(witness: &Witness, orders: &Orders, number: u32) -> JoinHandle<()> {
    let (witness, orders) = (witness.clone(), orders.clone());
    task(async move {
        let key = (number / 10) as u8;
        let sent = orders.submit_when(message(key, number), WAIT).await;
        if let Some(receipt) = witness.sent(number, sent) {
            drop(orders);
            let _ = witness.answered(number, receipt).await;
        }
    })
}

/// The shutdown comes while delayed messages become due. Paused and halted lanes do not go on.
pub(super) async fn delayed_meets_the_end() {
    let witness = Witness::new();
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .delayed(if rt::one_in(2) {
            Delayed::Pass
        } else {
            Delayed::Wait
        })
        .capacity(3);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let mut senders = vec![
        delayed(&witness, &orders, 10),
        delayed(&witness, &orders, 20),
        witness.send(&orders, 1, &[30]),
    ];
    let lane = orders.lane(&1);
    senders.push(task(async move {
        lane.pause();
        pause().await;
        let _ = lane.resume();
    }));
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}

/// A batch fails and the shutdown comes while more messages of its key arrive.
pub(super) async fn a_failing_batch_meets_arrivals() {
    let started: Arc<Mutex<(bool, Vec<u32>)>> = Arc::default();
    let seen = Arc::clone(&started);
    let orders = Dispatcher::key_by_opt(|message: &Message| message.key)
        .batch(2, if rt::one_in(2) { WAIT } else { Duration::ZERO })
        .retry(Retry::fixed(WAIT).max_attempts(3))
        .capacity(4)
        .hasher(Hasher::default())
        .shards(2)
        .spawn_batches(move |batch: Vec<Message>| {
            let seen = Arc::clone(&seen);
            async move {
                let was_running = std::mem::replace(&mut seen.lock().expect("no panic").0, true);
                assert!(!was_running, "two batches of one key");
                pause().await;
                let mut seen = seen.lock().expect("no panic");
                seen.0 = false;
                let answers = batch.iter().map(|message| match rt::one_in(3) {
                    true => Err("as told"),
                    false => {
                        seen.1.push(message.number);
                        Ok(message.number)
                    }
                });
                answers.collect::<Vec<Result<u32, &'static str>>>()
            }
        })
        .expect("the settings are right");
    let sender = {
        let orders = orders.clone();
        task(async move {
            for number in 0..5 {
                if orders.send(message(1, number)).await.is_err() {
                    break;
                }
            }
        })
    };
    if rt::one_in(2) {
        pause().await;
    } else {
        while orders.stats().accepted < 5 && !sender.is_finished() {
            rt::yield_now().await;
        }
    }
    let capacity = 4;
    let closes = rt::one_in(2);
    let report = if closes {
        orders.close().await
    } else {
        orders.drain().await
    };
    let _ = sender.await;
    let stats = orders.stats();
    let settled = report.done + report.discarded + report.handed_back;
    assert_eq!(settled, report.accepted, "{report:?}");
    assert_eq!((stats.lanes, stats.stalled, stats.in_flight), (0, 0, 0));
    assert_eq!(stats.capacity_left, capacity);
    let done = std::mem::take(&mut started.lock().expect("no panic").1);
    assert_eq!(done.len() as u64, report.done);
    let back = report
        .returned
        .iter()
        .filter_map(|back| Some(back.message.as_ref()?.number));
    assert!(back.is_sorted(), "handed back in order");
    drop(done);
    // Wait until the engine is gone. Otherwise its tasks would be dropped in the middle of a step.
    let engine = rt::Arc::downgrade(&orders.engine);
    drop(orders);
    while engine.strong_count() > 0 {
        rt::yield_now().await;
    }
}
