//! Real threads: places that are dropped and polled elsewhere, at any moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::rig::{assert_idle, gates, turn, wide};

const KEYS: u64 = 5;

#[test]
fn dropped_on_another_thread() {
    let gates = wide();
    let held = gates.try_enter(1).unwrap().try_turn().unwrap();
    let parked = gates.try_enter(1).unwrap();
    let mut next = gates.try_enter(1).unwrap();
    std::thread::spawn(move || drop((parked, held)))
        .join()
        .unwrap();
    drop(turn(&mut next));
    assert_idle(&gates);
}

/// Who enters with its number taken under the same lock has its turn in the order of the numbers.
#[test]
fn order_and_exclusion_among_threads() {
    let gates = gates(40, 3, 12);
    let running: Arc<[AtomicBool; KEYS as usize]> = Arc::default();
    let turns = Arc::new(AtomicUsize::new(0));
    let numbers: Arc<Mutex<HashMap<u64, u64>>> = Arc::default();
    let last: Arc<Mutex<HashMap<u64, u64>>> = Arc::default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let (gates, running, turns) = (gates.clone(), Arc::clone(&running), Arc::clone(&turns));
            let (numbers, last) = (Arc::clone(&numbers), Arc::clone(&last));
            runtime.spawn(async move {
                let mut dice = task * 7_919 + 1;
                for _ in 0..2_000 {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let roll = dice >> 33;
                    let key = roll % KEYS;
                    let room = gates.reserve().await.unwrap();
                    let entered = {
                        let mut numbers = numbers.lock().unwrap();
                        let number = numbers.entry(key).or_default();
                        *number += 1;
                        room.enter(key).map(|place| (*number, place))
                    };
                    let Ok((number, place)) = entered else {
                        continue;
                    };
                    match roll % 11 {
                        0 => {
                            drop(place);
                            continue;
                        }
                        1 => {
                            let mut place = place;
                            let waits = std::future::poll_fn(|cx| {
                                std::task::Poll::Ready(std::pin::Pin::new(&mut place).poll(cx))
                            });
                            drop(waits.await);
                            tokio::task::yield_now().await;
                            drop(place);
                            continue;
                        }
                        _ => {}
                    }
                    let held = place.await.unwrap();
                    assert!(
                        !running[key as usize].swap(true, Ordering::SeqCst),
                        "exclusion"
                    );
                    assert!(turns.fetch_add(1, Ordering::SeqCst) < 3, "concurrency");
                    let before = last.lock().unwrap().insert(key, number);
                    assert!(before.unwrap_or_default() < number, "order");
                    if roll % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                    turns.fetch_sub(1, Ordering::SeqCst);
                    running[key as usize].store(false, Ordering::SeqCst);
                    drop(held);
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_idle(&gates);
}

/// Closed in the middle: every task comes to its end.
#[test]
fn closed_in_the_middle() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .build()
        .unwrap();
    for round in 0..200_usize {
        let gates = gates(6, 2, 4);
        let tasks: Vec<_> = (0..6_u64)
            .map(|task| {
                let gates = gates.clone();
                runtime.spawn(async move {
                    let mut key = task;
                    while let Ok(held) = gates.turn(key % 3).await {
                        key += 1;
                        if key % 2 == 0 {
                            tokio::task::yield_now().await;
                        }
                        drop(held);
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for _ in 0..round % 20 {
                tokio::task::yield_now().await;
            }
            gates.close();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_idle(&gates);
    }
}
