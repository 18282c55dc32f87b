//! G2: first attempts of one key start in the order of acceptance; a retry runs before anything
//! behind it.

use std::collections::HashMap;
use std::sync::Arc;

use keylane::Retry;
use keylane_testkit::{Act, Event, Evidence, History, Id, Script};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::rig::{Desk, Dice, MS, SECOND, mails, on_both, paused, scripted};

/// The ids in the order in which their attempts started.
fn starts(history: &History) -> Vec<Id> {
    let start = |event| match event {
        Event::Start { id, .. } => Some(id),
        _ => None,
    };
    history
        .records()
        .iter()
        .filter_map(|record| start(record.event))
        .collect()
}

#[test]
fn first_attempts_start_in_the_order_of_acceptance() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| {
            let mut dice = Dice::new(cue.id);
            let slow = dice.below(4) as u32;
            match dice.below(10) {
                0 if cue.attempt == 1 => Act::error().yields(slow),
                1..4 => Act::ok().sleeps(MS * slow),
                4..7 => Act::ok().yields(slow),
                _ => Act::ok(),
            }
        });
        let orders = mails()
            .concurrency(8)
            .capacity(32)
            .lane_capacity(5, keylane::Overflow::Wait)
            .quantum(2)
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        let shared = Arc::new(Mutex::new(()));
        let mut senders = JoinSet::new();
        for sender in 0..4 {
            let (desk, shared) = (desk.clone(), Arc::clone(&shared));
            senders.spawn(async move {
                for n in 0..120 {
                    if n % 3 == 0 {
                        // One key for all: whoever holds the lock is the next in order.
                        let _turn = shared.lock().await;
                        desk.send(1_000).await;
                    } else {
                        desk.send(sender * 10 + n % 4).await;
                    }
                }
            });
        }
        while let Some(sender) = senders.join_next().await {
            sender.unwrap();
        }
        let report = desk.finish(Evidence::new().max_attempts(5)).await;
        assert_eq!(report.done, 480);
    });
}

/// Senders that race for a key have no order among them, but each has its own.
#[test]
fn each_of_many_senders_of_one_key_keeps_its_own_order() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| Act::ok().yields((cue.id % 3) as u32));
        let orders = mails().capacity(8).spawn(scripted(script)).unwrap();
        let mut senders = JoinSet::new();
        for sender in 0..4 {
            let orders = orders.clone();
            senders.spawn(async move {
                for n in 0..100 {
                    let id = sender * 1_000 + n;
                    orders
                        .send(crate::rig::Mail { key: Some(7), id })
                        .await
                        .unwrap();
                }
            });
        }
        while let Some(sender) = senders.join_next().await {
            sender.unwrap();
        }
        assert_eq!(orders.drain().await.done, 400);
        let mut last = HashMap::new();
        for id in starts(&history) {
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
        let orders = mails()
            .retry(Retry::fixed(SECOND).max_attempts(3))
            .spawn(scripted(script))
            .unwrap();
        let desk = Desk::new(&history, orders);
        desk.send_all(1, 4).await;
        // Arrivals during the wait: they may not take the place of the one that waits.
        tokio::time::sleep(SECOND / 2).await;
        desk.send_all(1, 2).await;
        tokio::time::sleep(SECOND).await;
        desk.send(1).await;
        desk.finish(Evidence::new().max_attempts(3)).await;
        assert_eq!(starts(&history), [1, 1, 1, 2, 3, 3, 4, 5, 6, 7]);
    });
}
