//! G1, G2, G3 while the number of lanes changes.

mod disciplines;
mod ends;
mod load;
mod merges;
mod others;
mod support;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use keylane::Dispatcher;
use keylane::error::ResizeError;
use keylane::routing::HashLanes;
use keylane_testkit::scenario::{Message, Random, paused, scripted, threads, within};
use keylane_testkit::{Act, History, Script};

use self::support::hashed;
use crate::support::boxed_in_lanes;

const USERS: u64 = 200;

fn lanes(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

/// Who is in flight and what was last, per user.
#[derive(Default)]
struct Seen {
    running: bool,
    last: u64,
    breaks: u64,
}

#[test]
fn a_thousand_changes_under_load_break_no_order() {
    threads().block_on(async {
        let seen: Arc<Vec<Mutex<Seen>>> = Arc::new((0..USERS).map(|_| Mutex::default()).collect());
        let watched = Arc::clone(&seen);
        let orders: HashLanes<(u64, u64)> =
            Dispatcher::hash_lanes(lanes(4), |order: &(u64, u64)| order.0)
                .capacity(2_000)
                .spawn(boxed_in_lanes(move |_, (user, number)| {
                    let seen = Arc::clone(&watched);
                    async move {
                        {
                            let mut seen = seen[user as usize].lock().unwrap();
                            let broken = seen.running || seen.last + 1 != number;
                            seen.breaks += u64::from(broken);
                            seen.running = true;
                            seen.last = number;
                        }
                        if number % 3 == 0 {
                            tokio::task::yield_now().await;
                        }
                        seen[user as usize].lock().unwrap().running = false;
                        Ok(())
                    }
                }))
                .unwrap();
        let stop = Arc::new(AtomicU64::new(0));
        let load = {
            let (orders, stop) = (orders.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut number = 0;
                while stop.load(Ordering::Relaxed) == 0 {
                    number += 1;
                    for user in 0..USERS {
                        orders.send((user, number)).await.unwrap();
                    }
                }
            })
        };
        let mut dice = Random::new(7);
        for _ in 0..1_000 {
            let count = 1 + dice.below(40) as usize;
            within(orders.resize(count)).await.unwrap();
            assert_eq!(orders.lanes(), count);
        }
        stop.store(1, Ordering::Relaxed);
        load.await.unwrap();
        let report = orders.drain().await;
        assert_eq!(report.done, report.accepted);
        let breaks: u64 = seen.iter().map(|seen| seen.lock().unwrap().breaks).sum();
        assert_eq!(breaks, 0);
    });
}

#[test]
fn no_lanes_are_refused_and_the_end_ends_a_change() {
    paused().block_on(async {
        let script = Script::new(&History::new()).otherwise(Act::never());
        let orders = hashed(1).spawn(scripted(script)).unwrap();
        assert_eq!(orders.resize(0).await, Err(ResizeError::Zero));
        assert_eq!(orders.resize(usize::MAX).await, Err(ResizeError::TooMany));
        orders.send(Message::new(1, 1)).await.unwrap();
        tokio::task::yield_now().await;
        let change = {
            let orders = orders.clone();
            tokio::spawn(async move { orders.resize(64).await })
        };
        tokio::task::yield_now().await;
        for order in 2..100 {
            orders.send(Message::new(order, order)).await.unwrap();
        }
        let report = orders.abort().await;
        assert_eq!(report.handed_back, 99);
        drop(orders);
        assert_eq!(change.await.unwrap(), Err(ResizeError::Closed));
    });
}
