//! The pull queue: leases end, expire and are dropped while other tasks wait.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use keylane_queue::{EnqueueError, Lease, LeaseError, Queue, Redelivery, Report};
use keylane_rt as rt;
use shuttle_tokio::task::JoinHandle;

use super::explore::pause;
use super::witness::{Hasher, Key, task};

/// A key, and a number that counts up within the key.
type Job = (Key, u32);
type Jobs = Queue<Key, Job>;

/// What the workers of one execution recorded. Its lock is not a lock of the model.
#[derive(Clone, Default)]
struct Workers(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// The largest token of each key so far.
    tokens: BTreeMap<Key, u64>,
    /// How many times each message was settled. The count goes up before another task can see the
    /// settlement, and goes down again if the lease had expired.
    completed: BTreeMap<Job, u32>,
    given_up: BTreeMap<Job, u32>,
    /// Messages are being taken back. It is not known yet which ones, so all count as settled.
    takes: bool,
}

impl Seen {
    fn is_settled(&self, job: Job) -> bool {
        if self.takes {
            return true;
        }
        let count = |list: &BTreeMap<Job, u32>| list.get(&job).copied().unwrap_or_default();
        count(&self.completed) + count(&self.given_up) > 0
    }
}

fn jobs(capacity: usize) -> Jobs {
    let builder = Queue::builder(|job: &Job| job.0).hasher(Hasher::default());
    builder
        .capacity(capacity)
        .spawn()
        .expect("the settings agree")
}

fn holding(jobs: &[Job]) -> Jobs {
    let queue = self::jobs(8);
    for job in jobs {
        queue.try_enqueue(*job).expect("there is room");
    }
    queue
}

impl Workers {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().expect("no panic under this lock")
    }

    /// Records a lease. All messages before it must have settled, unless this lease has already
    /// expired.
    fn leased(&self, lease: &Lease<Key, Job>) {
        let mut seen = self.seen();
        let (key, number) = **lease;
        let last = seen.tokens.entry(key).or_default();
        if *last > lease.token() {
            return;
        }
        *last = lease.token();
        let overtaken = (1..number).find(|earlier| !seen.is_settled((key, *earlier)));
        assert_eq!(overtaken, None, "overtaken by {number} of key {key}");
    }

    /// Ends a lease in a way that the scheduler chooses.
    fn end(&self, lease: Lease<Key, Job>) {
        if rt::one_in(2) {
            self.settle(lease, |seen| &mut seen.completed, Lease::complete);
            return;
        }
        if rt::one_in(4) {
            let give_up = |lease: Lease<Key, Job>| lease.fail(Redelivery::Never);
            self.settle(lease, |seen| &mut seen.given_up, give_up);
            return;
        }
        let failed = match rt::one_in(2) {
            true => lease.fail(Redelivery::Now),
            false if rt::one_in(2) => lease.fail(Redelivery::After(Duration::from_millis(5))),
            false => return drop(lease),
        };
        assert!(matches!(failed, Ok(()) | Err(LeaseError::Expired)));
    }

    fn settle(
        &self,
        lease: Lease<Key, Job>,
        list: impl Fn(&mut Seen) -> &mut BTreeMap<Job, u32>,
        end: impl FnOnce(Lease<Key, Job>) -> Result<(), LeaseError>,
    ) {
        let job = *lease;
        *list(&mut self.seen()).entry(job).or_default() += 1;
        if let Err(error) = end(lease) {
            assert_eq!(error, LeaseError::Expired);
            *list(&mut self.seen()).entry(job).or_default() -= 1;
        }
    }

    /// Works until the queue is finished.
    fn work(&self, queue: &Jobs) -> JoinHandle<()> {
        let (workers, queue) = (self.clone(), queue.clone());
        task(async move {
            while let Some(lease) = queue.dequeue().await {
                workers.leased(&lease);
                pause().await;
                workers.end(lease);
            }
        })
    }

    fn judge(&self, report: Report) {
        let seen = self.seen();
        let count = |list: &BTreeMap<Job, u32>| list.values().map(|n| u64::from(*n)).sum::<u64>();
        assert_eq!(report.unsettled, 0, "{report}");
        assert_eq!(report.completed, count(&seen.completed), "{report}");
        assert_eq!(report.given_up, count(&seen.given_up), "{report}");
        let mut settled: Vec<Job> = seen.completed.keys().copied().collect();
        settled.extend(seen.given_up.keys());
        for job in settled {
            let of = |list: &BTreeMap<Job, u32>| list.get(&job).copied().unwrap_or_default();
            let times = of(&seen.completed) + of(&seen.given_up);
            assert!(times <= 1, "{job:?} is settled {times} times");
        }
    }
}

async fn finish(queue: Jobs, workers: &Workers, tasks: Vec<JoinHandle<()>>) {
    let report = queue.drain().await;
    for task in tasks {
        task.await.expect("no worker is stopped");
    }
    // Not earlier: a worker may not yet know that its lease has expired.
    workers.judge(report);
    assert!(queue.dequeue().await.is_none());
    assert_eq!((queue.leased(), queue.len()), (0, 0));
}

/// A lease is dropped, and its message goes to a waiting task.
pub(super) async fn dropped_lease() {
    let workers = Workers::default();
    let queue = holding(&[(1, 1), (1, 2), (2, 1)]);
    let mut tasks = vec![workers.work(&queue), workers.work(&queue)];
    let crashes = {
        let queue = queue.clone();
        task(async move {
            if let Some(lease) = queue.dequeue().await {
                pause().await;
                drop(lease);
            }
        })
    };
    tasks.push(crashes);
    pause().await;
    finish(queue, &workers, tasks).await;
}

/// A lease may expire at any moment, also while it is completed.
pub(super) async fn expiry_and_complete() {
    let workers = Workers::default();
    let queue = holding(&[(1, 1), (1, 2)]);
    let tasks = (0..2).map(|_| {
        let (workers, queue) = (workers.clone(), queue.clone());
        task(async move {
            while let Some(lease) = queue.dequeue().await {
                workers.leased(&lease);
                pause().await;
                workers.settle(lease, |seen| &mut seen.completed, Lease::complete);
            }
        })
    });
    let tasks = tasks.collect();
    finish(queue, &workers, tasks).await;
    assert_eq!(workers.seen().completed.len(), 2);
}

/// The queue closes while some tasks wait and some work. No task waits for ever, and none returns
/// too early.
pub(super) async fn close_and_dequeue() {
    let workers = Workers::default();
    let queue = jobs(8);
    let tasks = vec![workers.work(&queue), workers.work(&queue)];
    let sender = {
        let queue = queue.clone();
        task(async move {
            for job in [(1, 1), (1, 2), (2, 1)] {
                if queue.enqueue(job).await.is_err() {
                    break;
                }
            }
        })
    };
    pause().await;
    if rt::one_in(2) {
        queue.close();
        pause().await;
        workers.seen().takes = true;
        queue.take_parked();
    }
    finish(queue, &workers, tasks).await;
    sender.await.expect("it is not stopped");
}

/// Tasks wait for room that a settlement frees. One of the tasks is dropped.
pub(super) async fn capacity_and_complete() {
    let workers = Workers::default();
    let queue = jobs(1);
    let tasks = vec![workers.work(&queue)];
    let send = |key| {
        let queue = queue.clone();
        task(async move {
            for number in 1..=2 {
                queue.enqueue((key, number)).await.expect("it is open");
            }
        })
    };
    let (one, two) = (send(1), send(2));
    let gives_up = {
        let queue = queue.clone();
        task(async move {
            let _ = queue.enqueue((3, 1)).await;
        })
    };
    pause().await;
    gives_up.abort();
    one.await.expect("it is not stopped");
    two.await.expect("it is not stopped");
    let _ = gives_up.await;
    let accepted = queue.report().accepted;
    assert!(accepted == 4 || accepted == 5);
    finish(queue, &workers, tasks).await;
}

/// A `dequeue` is dropped at any moment. The other `dequeue` gets its message.
pub(super) async fn cancelled_dequeue() {
    let workers = Workers::default();
    let queue = holding(&[(1, 1)]);
    let held = queue.try_dequeue().expect("it is ready");
    let gives_up = {
        let queue = queue.clone();
        task(async move {
            let mut waits = pin!(queue.dequeue());
            let mut patience = rt::one_in(2);
            poll_fn(|cx| match waits.as_mut().poll(cx) {
                Poll::Pending if std::mem::take(&mut patience) => Poll::Pending,
                _ => Poll::Ready(()),
            })
            .await;
        })
    };
    let tasks = vec![workers.work(&queue)];
    pause().await;
    drop(held);
    queue.try_enqueue((2, 1)).expect("there is room");
    gives_up.abort();
    let _ = gives_up.await;
    finish(queue, &workers, tasks).await;
}

/// Workers end their leases in every possible way. The order of each key is kept.
pub(super) async fn all_ends() {
    let workers = Workers::default();
    let queue = holding(&[(1, 1), (1, 2), (1, 3), (2, 1)]);
    let tasks = vec![workers.work(&queue), workers.work(&queue)];
    finish(queue, &workers, tasks).await;
}

/// Tasks meet a full lane while its head settles. A refused message takes no room, and the order
/// is kept.
pub(super) async fn full_lane() {
    let workers = Workers::default();
    let builder = Queue::builder(|job: &Job| job.0).hasher(Hasher::default());
    let builder = builder.capacity(2).lane_capacity(1);
    let queue = builder.spawn().expect("the settings agree");
    let tasks = vec![workers.work(&queue)];
    let send = |key| {
        let queue = queue.clone();
        task(async move {
            let mut number = 1;
            while number <= 2 {
                match queue.enqueue((key, number)).await {
                    Ok(()) => number += 1,
                    Err(EnqueueError::LaneFull(_)) => rt::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    let senders = [send(1), send(2)];
    for sender in senders {
        sender.await.expect("it is not stopped");
    }
    assert_eq!(queue.report().accepted, 4);
    finish(queue, &workers, tasks).await;
}

/// All messages are taken back while heads enter their lanes to be delayed, and leave them again.
pub(super) async fn delays_and_take_parked() {
    let workers = Workers::default();
    let queue = holding(&[(1, 1), (1, 2), (2, 1)]);
    let tasks = (0..2).map(|_| {
        let queue = queue.clone();
        task(async move {
            while let Some(lease) = queue.dequeue().await {
                pause().await;
                let failed = lease.fail(Redelivery::After(Duration::from_millis(5)));
                assert!(matches!(failed, Ok(()) | Err(LeaseError::Expired)));
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    pause().await;
    let mut taken = Vec::new();
    while !queue.is_empty() {
        let back = queue.take_parked();
        taken.extend(back.iter().map(|back| **back));
        rt::yield_now().await;
    }
    taken.sort_unstable();
    assert_eq!(taken, [(1, 1), (1, 2), (2, 1)]);
    assert_eq!(queue.report().handed_back, 3);
    finish(queue, &workers, tasks).await;
}
