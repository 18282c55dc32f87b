//! Lanes with a discipline, and priorities, while the number of lanes changes: no user's messages
//! overtake each other, and each one settles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::discipline::Coalesce;
use keylane::routing::{HashLane, HashLanes};
use keylane::{Dispatcher, OnExhausted, Overflow, Rate, Report};
use keylane_testkit::scenario::{MS, Message, Random, on_both, paused, quiet, scripted, within};
use keylane_testkit::{Act, Evidence, Gate, History, LetterBox, Script};

use super::lanes;
use super::support::{Producer, begin, finish, hashed, users};
use crate::support::boxed_in_lanes;

/// A user and a number.
type Order = (u64, u64);

/// The last number of each user, and what came out of order.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Book>>);

type Book = (HashMap<u64, u64>, Vec<Order>);

impl Ledger {
    fn note(&self, orders: &[Order]) {
        let (last, wrong) = &mut *self.0.lock().unwrap();
        for (user, number) in orders {
            if last
                .insert(*user, *number)
                .is_some_and(|before| before >= *number)
            {
                wrong.push((*user, *number));
            }
        }
    }
}

/// Sends, changes the number of lanes again and again, and drains.
async fn live(lanes: HashLanes<Order>, ledger: Ledger) -> Report<HashLane, Order> {
    let mut dice = Random::new(11);
    for number in 0..150 {
        for user in 0..30 {
            within(lanes.send((user, number))).await.unwrap();
        }
        if number % 5 == 0 {
            within(lanes.resize(1 + dice.below(12) as usize))
                .await
                .unwrap();
        } else {
            let (lanes, count) = (lanes.clone(), 1 + dice.below(12) as usize);
            tokio::spawn(async move { lanes.resize(count).await });
        }
    }
    let report = within(async { lanes.drain().await }).await;
    // A lane with a rate remembers it, and may be there still.
    let stats = lanes.stats();
    assert_eq!(
        (stats.stalled, stats.in_flight, stats.full_lanes),
        (0, 0, 0)
    );
    assert_eq!(report.accepted, 150 * 30);
    let (_, wrong) = &*ledger.0.lock().unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    report
}

#[test]
fn batches_keep_the_order_of_each_user() {
    on_both(|| async {
        let ledger = Ledger::default();
        let seen = ledger.clone();
        let lanes = Dispatcher::hash_lanes(lanes(3), |order: &Order| order.0)
            .batch(5, MS)
            .spawn_batches(move |batch: Vec<Order>| {
                seen.note(&batch);
                async { Ok(()) }
            })
            .unwrap();
        assert_eq!(live(lanes, ledger).await.done, 150 * 30);
    });
}

#[test]
fn rates_priorities_and_deadlines_keep_the_order_of_each_user() {
    paused().block_on(async {
        for setting in 0..3 {
            let ledger = Ledger::default();
            let seen = ledger.clone();
            let lanes = Dispatcher::hash_lanes(lanes(3), |order: &Order| order.0);
            let lanes = match setting {
                0 => lanes.rate_per_key(Rate::per_second(1_000).burst(3)),
                1 => lanes.priority(2, |order: &Order| (order.1 % 2) as u8),
                _ => lanes.expire_after(Duration::from_secs(3600)),
            };
            let lanes = lanes
                .concurrency(2)
                .spawn(boxed_in_lanes(move |_, order| {
                    seen.note(&[order]);
                    async {
                        tokio::task::yield_now().await;
                        Ok(())
                    }
                }))
                .unwrap();
            assert_eq!(live(lanes, ledger).await.done, 150 * 30, "{setting}");
        }
    });
}

/// Coalescing is about the lane. What is left of a user's messages still comes in order.
#[test]
fn coalescing_lanes_lose_none_without_saying_so() {
    paused().block_on(async {
        for keeps_first in [false, true] {
            let ledger = Ledger::default();
            let seen = ledger.clone();
            let lanes = Dispatcher::hash_lanes(lanes(3), |order: &Order| order.0)
                .coalesce(match keeps_first {
                    false => Coalesce::keep_latest(),
                    true => Coalesce::keep_first(),
                })
                .spawn(boxed_in_lanes(move |_, order| {
                    seen.note(&[order]);
                    async {
                        tokio::task::yield_now().await;
                        Ok(())
                    }
                }))
                .unwrap();
            let report = live(lanes, ledger).await;
            assert_eq!(report.done + report.coalesced, report.accepted);
        }
    });
}

/// What meets the limit behind an old lane becomes a letter at once, where that is the policy.
#[test]
fn who_waits_for_its_old_lane_may_become_a_letter() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let blocker = users(4, 0, 8, false).next().unwrap();
        let script = Script::new(&history).key(blocker, Act::ok().waits(&gate));
        let letters = LetterBox::new(&history);
        let sink = Arc::new(letters.sink(|message: &Message| message.id));
        let lanes = hashed(4)
            .lane_capacity(3, Overflow::DeadLetter)
            .on_exhausted(OnExhausted::DeadLetter(sink))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, lanes);
        producer.send(blocker).await;
        quiet().await;
        let change = begin(&producer, 8).await;
        let hot = users(4, 0, 8, true).next().unwrap();
        for _ in 0..5 {
            producer.send(hot).await;
        }
        quiet().await;
        assert_eq!(producer.dispatcher.stats().dead_lettered, 2);
        gate.open();
        within(change).await.unwrap().unwrap();
        let evidence = Evidence::new().max_attempts(1).overflow_letters();
        assert_eq!(finish(producer, evidence).await.done, 4);
    });
}
