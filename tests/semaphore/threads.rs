//! Real threads: everything is called, polled and dropped from any of them, at any moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use keylane_semaphore::KeyedSemaphore;
use keylane_testkit::scenario::{Random, drop_after_polls};

use crate::support::{Semaphore, acquire, assert_idle, permit, poll, semaphore, wide};

const KEYS: u64 = 5;

#[test]
fn dropped_on_another_thread() {
    let semaphore = wide();
    let held = acquire(&semaphore, 1).try_into_permit().unwrap();
    let parked = acquire(&semaphore, 1);
    let mut next = acquire(&semaphore, 1);
    std::thread::spawn(move || drop((parked, held)))
        .join()
        .unwrap();
    drop(permit(&mut next));
    assert_idle(&semaphore);
}

/// Waiters that take a number and their place under one lock are granted in the order of the
/// numbers.
#[test]
fn order_and_exclusion_among_threads() {
    let semaphore = semaphore(40, 3, 12);
    let running: Arc<[AtomicBool; KEYS as usize]> = Arc::default();
    let permits = Arc::new(AtomicUsize::new(0));
    let numbers: Arc<Mutex<HashMap<u64, u64>>> = Arc::default();
    let last: Arc<Mutex<HashMap<u64, u64>>> = Arc::default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let (semaphore, running, permits) = (
                semaphore.clone(),
                Arc::clone(&running),
                Arc::clone(&permits),
            );
            let (numbers, last) = (Arc::clone(&numbers), Arc::clone(&last));
            runtime.spawn(async move {
                let mut dice = Random::new(task);
                for _ in 0..2_000 {
                    let roll = dice.below(1 << 31);
                    let key = roll % KEYS;
                    let reservation = semaphore.reserve().await.unwrap();
                    let entered = {
                        let mut numbers = numbers.lock().unwrap();
                        let number = numbers.entry(key).or_default();
                        *number += 1;
                        reservation.acquire(key).map(|waiter| (*number, waiter))
                    };
                    let Ok((number, waiter)) = entered else {
                        continue;
                    };
                    match roll % 11 {
                        0 => {
                            drop(waiter);
                            continue;
                        }
                        1 => {
                            let yields = async |_| tokio::task::yield_now().await;
                            drop(drop_after_polls(1, waiter, yields).await);
                            continue;
                        }
                        _ => {}
                    }
                    let held = waiter.await.unwrap();
                    assert!(
                        !running[key as usize].swap(true, Ordering::SeqCst),
                        "exclusion"
                    );
                    assert!(permits.fetch_add(1, Ordering::SeqCst) < 3, "concurrency");
                    let before = last.lock().unwrap().insert(key, number);
                    assert!(before.unwrap_or_default() < number, "order");
                    if roll.is_multiple_of(3) {
                        tokio::task::yield_now().await;
                    }
                    permits.fetch_sub(1, Ordering::SeqCst);
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
    assert_idle(&semaphore);
}

/// Closed while tasks acquire: every task ends.
#[test]
fn closed_in_the_middle() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .build()
        .unwrap();
    for round in 0..200_usize {
        let semaphore = semaphore(6, 2, 4);
        let tasks: Vec<_> = (0..6_u64)
            .map(|task| {
                let semaphore = semaphore.clone();
                runtime.spawn(async move {
                    let mut key = task;
                    while let Ok(held) = semaphore.acquire(key % 3).await {
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
            semaphore.close();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_idle(&semaphore);
    }
}

/// Calls a function on a plain thread, inside a runtime without drivers, and in a task of another
/// runtime, which is idle afterwards. Each time, a task of a third runtime acquires key 1.
///
/// `prepare` runs before, with the semaphore that has two slots and one permit.
#[track_caller]
fn from_anywhere<T: Send + 'static>(
    prepare: impl Fn(&Semaphore) -> T,
    call: impl Fn(&Semaphore, T) + Send + Sync + Copy + 'static,
) {
    let multi_thread = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).build().unwrap()
    };
    let (home, other) = (multi_thread(), multi_thread());
    let bare = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for place in 0..3 {
        let semaphore = home.block_on(async { semaphore(2, 1, 2) });
        let prepared = prepare(&semaphore);
        let acquires = home.spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire(1).await.map(drop) }
        });
        let called = {
            let semaphore = semaphore.clone();
            move || call(&semaphore, prepared)
        };
        match place {
            0 => std::thread::spawn(called).join().unwrap(),
            1 => bare.block_on(async { called() }),
            _ => home.block_on(other.spawn(async { called() })).unwrap(),
        }
        let acquired = home.block_on(acquires).unwrap();
        assert_eq!(acquired.is_err(), semaphore.is_closed());
        assert_idle(&semaphore);
    }
}

#[test]
fn permits_are_dropped_anywhere() {
    from_anywhere(
        |semaphore| semaphore.try_acquire(1).unwrap(),
        |_, permit| drop(permit),
    );
    from_anywhere(
        |semaphore| semaphore.try_acquire(2).unwrap(),
        |_, permit| drop(permit),
    );
}

#[test]
fn waiters_are_dropped_anywhere() {
    from_anywhere(|semaphore| acquire(semaphore, 1), |_, waiter| drop(waiter));
    let queued = |semaphore: &Semaphore| (acquire(semaphore, 2), acquire(semaphore, 1));
    from_anywhere(queued, |_, (held, queued)| {
        drop(queued);
        drop(held);
    });
}

#[test]
fn reservations_are_used_and_dropped_anywhere() {
    let all = |semaphore: &Semaphore| {
        [
            semaphore.try_reserve().unwrap(),
            semaphore.try_reserve().unwrap(),
        ]
    };
    from_anywhere(all, |_, reservations| drop(reservations));
    from_anywhere(all, |_, [first, second]| {
        let waiter = first.acquire(1).unwrap();
        assert_eq!(waiter.key(), Some(&1));
        drop(waiter.try_into_permit().unwrap());
        let waiter = second.acquire_keyless().unwrap();
        // The task may have the one permit now.
        drop(waiter.try_into_permit());
    });
}

#[test]
fn capacity_is_waited_for_anywhere() {
    let all = |semaphore: &Semaphore| {
        [
            semaphore.try_reserve().unwrap(),
            semaphore.try_reserve().unwrap(),
        ]
    };
    from_anywhere(all, |semaphore, [first, second]| {
        assert!(semaphore.try_reserve().is_err());
        let mut reserve = semaphore.reserve();
        assert!(poll(&mut reserve).is_pending());
        drop((first, second));
        drop(reserve);
    });
}

#[test]
fn a_semaphore_is_closed_anywhere() {
    from_anywhere(
        |semaphore| semaphore.try_acquire(1).unwrap(),
        |semaphore, permit| {
            semaphore.close();
            assert!(semaphore.is_closed());
            drop(permit);
        },
    );
}

#[test]
fn a_semaphore_is_built_and_observed_anywhere() {
    from_anywhere(
        |semaphore| semaphore.try_acquire(1).unwrap(),
        |semaphore, permit| {
            assert_eq!(permit.key(), Some(&1));
            assert!(!semaphore.is_empty() && !semaphore.is_closed());
            assert!(semaphore.len() <= 2 && semaphore.lanes() == 1);
            assert_eq!(semaphore.permits_in_use(), Some(1));
            let built = KeyedSemaphore::<u64>::default();
            drop(built.clone().try_acquire(1).unwrap());
            assert!(semaphore.try_acquire(1).is_err());
            assert_idle(&built);
        },
    );
}
