//! Real threads: workers that complete, fail, crash and are late, and what they saw. And every
//! function that is not async, called outside the queue's runtime.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_queue::{
    EnqueueError, Lease, LeaseError, Queue, Redelivery, SpawnError, TryDequeueError,
};
use keylane_testkit::scenario::{Elsewhere, MS, paused, quiet, within};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::support::{Job, Jobs, TIME, builder, holding, jobs, lease, rest};

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
            .capacity(50)
            .spawn()
            .unwrap();
        let seen: Arc<Mutex<HashMap<u64, Seen>>> = Arc::default();
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (queue, seen) = (queue.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    let mut round = worker;
                    while let Some(lease) = queue.dequeue().await {
                        round += 1;
                        // No other worker may have this key until the lease ends.
                        seen.lock().unwrap().entry(lease.0).or_default().token = lease.token();
                        if round % 3 == 0 {
                            tokio::task::yield_now().await;
                        }
                        match round % 11 {
                            0 => drop(lease),
                            1 => lease.fail(Redelivery::Now).unwrap(),
                            2 => lease
                                .fail(Redelivery::After(Duration::from_micros(50)))
                                .unwrap(),
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

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Each place, with the paused time of the home runtime a day ahead of the system's.
async fn places() -> [Elsewhere; 5] {
    tokio::time::advance(DAY).await;
    Elsewhere::all()
}

/// Waits for the next message in a task of the home runtime, and says when it came.
fn waiting(queue: &Jobs) -> tokio::task::JoinHandle<Option<(Job, Instant)>> {
    let queue = queue.clone();
    tokio::spawn(async move {
        let lease = queue.dequeue().await?;
        let job = *lease;
        lease.complete().unwrap();
        Some((job, Instant::now()))
    })
}

#[tokio::test(start_paused = true)]
async fn try_enqueue_elsewhere() {
    for place in places().await {
        let queue = jobs();
        let task = waiting(&queue);
        quiet().await;
        let now = Instant::now();
        place.call(|| queue.try_enqueue((1, 1)).unwrap());
        assert_eq!(within(task).await.unwrap(), Some(((1, 1), now)));
    }
}

#[tokio::test(start_paused = true)]
async fn try_dequeue_elsewhere() {
    for place in places().await {
        let queue = holding(&[(1, 1)]);
        // The driver sleeps without an alarm.
        quiet().await;
        let now = Instant::now();
        let lease = place.call(|| queue.try_dequeue().unwrap());
        assert_eq!(lease.expires_at(), Some(now + TIME));
        let error = place.call(|| queue.try_dequeue().unwrap_err());
        assert_eq!(error, TryDequeueError::Empty);
        let task = waiting(&queue);
        assert_eq!(within(task).await.unwrap(), Some(((1, 1), now + TIME)));
        let refused = place.call(move || lease.complete());
        assert_eq!(refused, Err(LeaseError::Expired));
    }
}

/// A lease that has expired is seen before the driver has seen it, and a delay that has ended too.
#[tokio::test(start_paused = true)]
async fn try_dequeue_elsewhere_before_the_driver() {
    for place in places().await {
        let queue = holding(&[(1, 1), (2, 1)]);
        let _late = lease(&queue);
        lease(&queue).fail(Redelivery::After(TIME)).unwrap();
        quiet().await;
        tokio::time::advance(TIME - MS).await;
        assert_eq!(queue.leased(), 1, "the driver has not run");
        let got = place.call(|| [(); 2].map(|()| *queue.try_dequeue().unwrap()));
        assert_eq!(got, [(1, 1), (2, 1)]);
    }
}

/// Each way to end a lease, what becomes of its message, and when the next one is leased.
#[tokio::test(start_paused = true)]
async fn a_lease_ended_elsewhere() {
    type End = fn(Lease<u64, Job>) -> Result<(), LeaseError>;
    fn dropped(lease: Lease<u64, Job>) -> Result<(), LeaseError> {
        drop(lease);
        Ok(())
    }
    let ends: [(End, Job, Duration); 6] = [
        (|lease| lease.complete(), (1, 2), Duration::ZERO),
        (
            |lease| lease.fail(Redelivery::Never),
            (1, 2),
            Duration::ZERO,
        ),
        (|lease| lease.give_up().map(drop), (1, 2), Duration::ZERO),
        (|lease| lease.fail(Redelivery::Now), (1, 1), Duration::ZERO),
        (dropped, (1, 1), Duration::ZERO),
        (
            |lease| lease.fail(Redelivery::After(5 * MS)),
            (1, 1),
            5 * MS,
        ),
    ];
    for place in places().await {
        for (end, next, after) in ends {
            let queue = holding(&[(1, 1), (1, 2)]);
            let held = lease(&queue);
            let task = waiting(&queue);
            quiet().await;
            let now = Instant::now();
            assert_eq!(place.call(|| end(held)), Ok(()));
            assert_eq!(within(task).await.unwrap(), Some((next, now + after)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_extended_elsewhere() {
    for place in places().await {
        let queue = holding(&[(1, 1)]);
        let held = lease(&queue);
        quiet().await;
        let now = Instant::now();
        place.call(|| held.extend(2 * TIME).unwrap());
        let task = waiting(&queue);
        let got = within(task).await.unwrap();
        assert_eq!(got, Some(((1, 1), now + 2 * TIME)));
        let refused = place.call(|| held.extend(TIME));
        assert_eq!(refused, Err(LeaseError::Expired));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_read_elsewhere() {
    for place in places().await {
        let queue = holding(&[(1, 2)]);
        let held = lease(&queue);
        let expires_at = Instant::now() + TIME;
        tokio::time::sleep(MS).await;
        place.call(|| {
            assert_eq!(held.expires_at(), Some(expires_at));
            assert_eq!(held.time_left(), TIME - MS);
            assert!(format!("{held:?}").contains("time_left: 29.999s"));
            assert_eq!((held.key(), held.message()), (&1, &(1, 2)));
            assert_eq!((held.attempt(), held.token()), (1, 1));
        });
        tokio::time::sleep(TIME).await;
        place.call(|| {
            assert_eq!(
                (held.expires_at(), held.time_left()),
                (None, Duration::ZERO)
            );
        });
    }
}

#[tokio::test(start_paused = true)]
async fn take_parked_and_close_elsewhere() {
    for place in places().await {
        let queue = builder().capacity(3).spawn().unwrap();
        for job in [(1, 1), (2, 1), (2, 2)] {
            queue.try_enqueue(job).unwrap();
        }
        lease(&queue).fail(Redelivery::After(TIME)).unwrap();
        let sender = {
            let queue = queue.clone();
            tokio::spawn(async move { queue.enqueue((3, 1)).await })
        };
        quiet().await;
        let mut back = place.call(|| {
            let back = queue.take_parked();
            let back = back.into_iter().map(|back| back.into_message().unwrap());
            back.collect::<Vec<_>>()
        });
        back.sort_unstable();
        assert_eq!(back, [(1, 1), (2, 1), (2, 2)]);
        within(sender).await.unwrap().unwrap();

        let held = lease(&queue);
        let task = waiting(&queue);
        queue.try_enqueue((3, 2)).unwrap();
        queue.try_enqueue((3, 3)).unwrap();
        let sender = {
            let queue = queue.clone();
            tokio::spawn(async move { queue.enqueue((3, 4)).await })
        };
        quiet().await;
        place.call(|| queue.close());
        let refused = within(sender).await.unwrap();
        assert_eq!(refused, Err(EnqueueError::Closed((3, 4))));
        held.complete().unwrap();
        assert_eq!(within(task).await.unwrap().unwrap().0, (3, 2));
        let task = tokio::spawn({
            let queue = queue.clone();
            async move { queue.drain().await }
        });
        quiet().await;
        assert_eq!(place.call(|| rest(&queue)), [(3, 3)]);
        assert_eq!(within(task).await.unwrap().completed, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_read_elsewhere() {
    for place in places().await {
        let queue = holding(&[(1, 1), (1, 2)]);
        let held = lease(&queue);
        place.call(|| {
            assert_eq!(
                (queue.len(), queue.leased(), queue.capacity()),
                (2, 1, 65_536)
            );
            assert!(!queue.is_empty() && !queue.clone().is_closed());
            assert_eq!(queue.report().accepted, 2);
            assert!(format!("{queue:?}").contains("leased: 1"));
        });
        held.complete().unwrap();
    }
}

/// The driver ends with the last handle or lease, wherever that is dropped.
#[tokio::test(start_paused = true)]
async fn the_last_handle_dropped_elsewhere() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for place in places().await {
        for has_alarm in [false, true] {
            let queue = holding(&[(1, 1)]);
            let held = has_alarm.then(|| lease(&queue));
            quiet().await;
            assert_eq!(tasks(), before + 1);
            place.call(|| drop((queue, held)));
            tokio::task::yield_now().await;
            assert_eq!(tasks(), before);
        }
    }
}

/// A thread that has entered a runtime can spawn a queue there.
#[tokio::test(start_paused = true)]
async fn spawned_from_another_thread() {
    let home = Handle::current();
    let queue = Elsewhere::thread().call(|| {
        assert_eq!(builder().spawn().unwrap_err(), SpawnError::NoRuntime);
        let _entered = home.enter();
        jobs()
    });
    queue.try_enqueue((1, 1)).unwrap();
    let _held = lease(&queue);
    let now = Instant::now();
    let got = within(waiting(&queue)).await.unwrap();
    assert_eq!(got, Some(((1, 1), now + TIME)));
}

/// The time of a runtime of many threads is the system's, whatever the caller's is.
#[test]
fn the_time_of_a_runtime_of_many_threads() {
    let home = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let queue = home.block_on(async { builder().lease_time(DAY).spawn().unwrap() });
    paused().block_on(async {
        queue.try_enqueue((1, 1)).unwrap();
        let held = lease(&queue);
        tokio::time::advance(2 * DAY).await;
        assert!(held.time_left() > Duration::ZERO);
        assert_eq!(queue.try_dequeue().unwrap_err(), TryDequeueError::Empty);
        held.complete().unwrap();
        assert!(queue.is_empty());
    });
}
