//! Real threads: workers that complete, fail, crash and are late, and what they saw.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::{Again, Queue};

const KEYS: u64 = 7;
const JOBS: u64 = 4_000;
const WORKERS: u64 = 6;

/// What the workers saw of one key.
#[derive(Default)]
struct Seen {
    done: Vec<u64>,
    token: u64,
}

#[test]
fn order_and_exclusion_among_workers_on_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let queue = Queue::builder(|job: &(u64, u64)| job.0)
            .limit(50)
            .spawn()
            .unwrap();
        let seen: Arc<Mutex<HashMap<u64, Seen>>> = Arc::default();
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (queue, seen) = (queue.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    let mut turn = worker;
                    while let Some(lease) = queue.dequeue().await {
                        turn += 1;
                        // Nobody else may have this key until the lease ends.
                        seen.lock().unwrap().entry(lease.0).or_default().token = lease.token();
                        if turn % 3 == 0 {
                            tokio::task::yield_now().await;
                        }
                        match turn % 11 {
                            0 => drop(lease),
                            1 => lease.fail(Again::Now).unwrap(),
                            2 => lease.fail(Again::After(Duration::from_micros(50))).unwrap(),
                            _ => {
                                let mut seen = seen.lock().unwrap();
                                let seen = seen.get_mut(&lease.0).unwrap();
                                assert_eq!(seen.token, lease.token(), "another has it too");
                                seen.done.push(lease.1);
                                lease.complete().unwrap();
                            }
                        }
                    }
                })
            })
            .collect();
        let senders: Vec<_> = (0..KEYS)
            .map(|key| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    for number in 0..JOBS / KEYS {
                        queue.enqueue((key, number)).await.unwrap();
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.await.unwrap();
        }
        let report = queue.drain().await;
        assert_eq!((report.completed, report.unsettled), (report.accepted, 0));
        for worker in workers {
            worker.await.unwrap();
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len() as u64, KEYS);
        for (key, seen) in &*seen {
            let all: Vec<u64> = (0..JOBS / KEYS).collect();
            assert_eq!(seen.done, all, "key {key}");
        }
    });
}
