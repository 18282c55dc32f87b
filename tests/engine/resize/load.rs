//! A thousand changes under load, judged for each user by the history checker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keylane::Retry;
use keylane_testkit::scenario::{MS, Random, on_both, scripted, within};
use keylane_testkit::{Act, Evidence, History, Script};

use super::support::{Producer, finish, hashed};

const USERS: u64 = 60;

/// Handlers that answer at once, wait, and fail at first: nothing overtakes, nothing overlaps and
/// nothing is lost for any user.
#[test]
fn a_thousand_changes_are_right_for_each_user() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| {
            let mut dice = Random::new(cue.id);
            let slow = dice.below(4) as u32;
            match dice.below(20) {
                0 if cue.attempt == 1 => Act::error().yields(slow),
                1 if cue.attempt == 1 => Act::panic(),
                2 => Act::ok().sleeps(MS),
                3..8 => Act::ok().yields(slow),
                _ => Act::ok(),
            }
        });
        let lanes = hashed(4)
            .concurrency(8)
            .capacity(100)
            .lane_capacity(7, keylane::Overflow::Wait)
            .quantum(2)
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, lanes);
        let mut senders = tokio::task::JoinSet::new();
        let stop = Arc::new(AtomicBool::new(false));
        for sender in 0..3 {
            let (producer, stop) = (producer.clone(), Arc::clone(&stop));
            senders.spawn(async move {
                let mut dice = Random::new(sender);
                while !stop.load(Ordering::Relaxed) {
                    producer.send(sender * USERS + dice.below(USERS)).await;
                }
            });
        }
        let mut dice = Random::new(7);
        for _ in 0..1_000 {
            let count = 1 + dice.below(40) as usize;
            within(producer.dispatcher.resize(count)).await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        while let Some(sender) = within(senders.join_next()).await {
            sender.unwrap();
        }
        let report = finish(producer, Evidence::new().max_attempts(5)).await;
        assert!(report.done > 1_000, "{report}");
        assert_eq!(report.done, report.accepted);
    });
}

/// Changes that no task waits for, and many at once: the last one counts.
#[test]
fn changes_may_be_dropped_and_come_all_at_once() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::ok().yields(2));
        let producer = Producer::new(&history, hashed(3).spawn(scripted(script)).unwrap());
        let mut changes = tokio::task::JoinSet::new();
        let mut dice = Random::new(3);
        for round in 0..200 {
            for user in 0..40 {
                producer.send(user).await;
            }
            let (lanes, count) = (producer.dispatcher.clone(), 1 + dice.below(30) as usize);
            if round % 3 == 0 {
                // Polled once and dropped.
                tokio::select! {
                    biased;
                    changed = lanes.resize(count) => changed.unwrap(),
                    () = std::future::ready(()) => {}
                }
            } else {
                changes.spawn(async move { lanes.resize(count).await.unwrap() });
            }
        }
        while let Some(change) = within(changes.join_next()).await {
            change.unwrap();
        }
        within(producer.dispatcher.resize(10_000)).await.unwrap();
        assert_eq!(producer.dispatcher.lanes(), 10_000);
        within(producer.dispatcher.resize(10_000)).await.unwrap();
        within(producer.dispatcher.resize(1)).await.unwrap();
        assert_eq!(producer.dispatcher.lanes(), 1);
        finish(producer, Evidence::new()).await;
    });
}
