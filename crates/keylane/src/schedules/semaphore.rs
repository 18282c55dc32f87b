//! The keyed semaphore: permits are dropped while others acquire, leave, reserve and close.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use keylane_rt as rt;
use keylane_semaphore::{Acquire, KeyedPermit, KeyedSemaphore, Reservation};
use shuttle_tokio::task::JoinHandle;

use super::explore::pause;
use super::witness::{Hasher, Key, task};

/// The semaphore of one execution, and what was recorded.
#[derive(Clone)]
struct Scenario {
    semaphore: KeyedSemaphore<Key>,
    concurrency: usize,
    /// A lock of the standard library: the scheduler does not see it.
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    last: u32,
    /// By key, the waiters that have a place in the lane and are not about to leave.
    waiting: BTreeMap<Key, BTreeSet<u32>>,
    running: BTreeSet<Key>,
}

/// A waiter, and the waiters of its key that were before it in the lane.
struct Placed {
    acquire: Acquire<Key>,
    key: Key,
    number: u32,
    before: BTreeSet<u32>,
}

impl Scenario {
    fn new(capacity: usize, concurrency: usize) -> Self {
        let builder = KeyedSemaphore::builder().hasher(Hasher::default());
        let builder = builder.capacity(capacity).lane_capacity(capacity);
        let semaphore = builder.concurrency(concurrency).build();
        Self {
            semaphore: semaphore.expect("the settings are valid"),
            concurrency,
            seen: Arc::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no thread panics with this lock")
    }

    /// `None` if the semaphore is closed.
    fn acquire(&self, key: Key, reservation: Option<Reservation<Key>>) -> Option<Placed> {
        let before = self.seen().waiting.entry(key).or_default().clone();
        let reservation = match reservation {
            Some(reservation) => reservation,
            None => self.semaphore.try_reserve().ok()?,
        };
        let acquire = reservation.acquire(key).ok()?;
        let mut seen = self.seen();
        seen.last += 1;
        let number = seen.last;
        seen.waiting.entry(key).or_default().insert(number);
        Some(Placed {
            acquire,
            key,
            number,
            before,
        })
    }

    fn placed(&self, key: Key) -> Placed {
        self.acquire(key, None)
            .expect("it is open, and there is capacity")
    }

    /// Holds a permit for a while.
    async fn runs(
        &self,
        (key, number): (Key, u32),
        before: &BTreeSet<u32>,
        permit: KeyedPermit<Key>,
    ) {
        {
            let mut seen = self.seen();
            assert!(seen.running.insert(key), "two permits of {key}");
            assert!(seen.running.len() <= self.concurrency, "too many permits");
            let waiting = seen.waiting.entry(key).or_default();
            let overtaken = before.intersection(waiting).next();
            assert_eq!(overtaken, None, "overtaken by {number} of key {key}");
        }
        pause().await;
        self.leaving(key, number);
        self.seen().running.remove(&key);
        drop(permit);
    }

    /// Recorded before the waiter leaves, because the next one may start meanwhile.
    fn leaving(&self, key: Key, number: u32) {
        self.seen().waiting.entry(key).or_default().remove(&number);
    }

    /// Waits for the permit and holds it. Returns false if the semaphore was closed.
    async fn waits(&self, placed: Placed) -> bool {
        let Placed {
            mut acquire,
            key,
            number,
            before,
        } = placed;
        let Ok(permit) = (&mut acquire).await else {
            self.leaving(key, number);
            return false;
        };
        self.runs((key, number), &before, permit).await;
        true
    }

    /// Leaves at any moment, after one poll or none. Drops the permit if the poll gave it.
    async fn leaves(&self, mut placed: Placed) {
        if rt::one_in(2) {
            let acquire = &mut placed.acquire;
            let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut *acquire).poll(cx))).await;
            if let Poll::Ready(Ok(permit)) = polled {
                let waiter = (placed.key, placed.number);
                return self.runs(waiter, &placed.before, permit).await;
            }
        }
        pause().await;
        self.leaving(placed.key, placed.number);
        drop(placed);
    }

    /// Spawns a task that waits for its permit.
    fn wait(&self, placed: Placed) -> JoinHandle<()> {
        let scenario = self.clone();
        task(async move {
            scenario.waits(placed).await;
        })
    }

    /// Spawns a task that leaves before it has finished.
    fn leave(&self, placed: Placed) -> JoinHandle<()> {
        let scenario = self.clone();
        task(async move { scenario.leaves(placed).await })
    }

    async fn finish(&self, tasks: Vec<JoinHandle<()>>) {
        for task in tasks {
            task.await.expect("no task is aborted");
        }
        let semaphore = &self.semaphore;
        assert_eq!((semaphore.len(), semaphore.lanes()), (0, 0));
        assert_eq!(semaphore.permits_in_use().unwrap_or_default(), 0);
    }
}

/// A permit is dropped while the next waiter leaves.
pub(super) async fn release_meets_leaving() {
    let scenario = Scenario::new(8, if rt::one_in(2) { 8 } else { 1 });
    let [first, second, third, fourth] = [1; 4].map(|key| scenario.placed(key));
    let tasks = vec![
        scenario.wait(first),
        scenario.leave(second),
        scenario.leave(third),
        scenario.wait(fourth),
    ];
    scenario.finish(tasks).await;
}

/// The head of a lane leaves the line for a permit while it is granted one.
pub(super) async fn queued_leaves_and_is_granted() {
    let scenario = Scenario::new(8, 1);
    let [held, queued, behind] = [2, 1, 1].map(|key| scenario.placed(key));
    let other = scenario.placed(3);
    let tasks = vec![
        scenario.wait(held),
        scenario.leave(queued),
        scenario.wait(behind),
        scenario.leave(other),
    ];
    scenario.finish(tasks).await;
}

/// A waiter takes a place while the last waiter leaves and the lane is removed.
pub(super) async fn acquire_meets_the_last_one() {
    let scenario = Scenario::new(8, if rt::one_in(2) { 8 } else { 2 });
    let tasks = (0..3).map(|_| {
        let scenario = scenario.clone();
        task(async move {
            for _ in 0..2 {
                let placed = scenario.placed(1);
                if rt::one_in(3) {
                    scenario.leaves(placed).await;
                } else {
                    scenario.waits(placed).await;
                }
            }
        })
    });
    let tasks = tasks.collect();
    scenario.finish(tasks).await;
}

/// A `reserve` is dropped while it is granted its slot.
pub(super) async fn reserve_leaves_with_a_slot_granted() {
    let scenario = Scenario::new(1, 1);
    let held = scenario.placed(1);
    let mut tasks = vec![scenario.wait(held)];
    for waits in [false, true, true] {
        let scenario = scenario.clone();
        tasks.push(task(async move {
            let mut reserve = scenario.semaphore.reserve();
            if !waits {
                let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut reserve).poll(cx))).await;
                pause().await;
                return drop((polled, reserve));
            }
            let reservation = reserve.await.expect("it is open");
            let placed = scenario.acquire(2, Some(reservation)).expect("it is open");
            scenario.waits(placed).await;
        }));
    }
    scenario.finish(tasks).await;
}

/// The semaphore is closed while others acquire. One permit is held until all of them have failed.
pub(super) async fn close_meets_acquire() {
    let scenario = Scenario::new(8, if rt::one_in(2) { 8 } else { 1 });
    let held = scenario.placed(1).acquire.await.expect("it is open");
    let mut tasks = Vec::new();
    for key in [1, 1, 2] {
        let scenario = scenario.clone();
        tasks.push(task(async move {
            let Ok(reservation) = scenario.semaphore.reserve().await else {
                return;
            };
            let Some(placed) = scenario.acquire(key, Some(reservation)) else {
                return;
            };
            let had_permit = scenario.waits(placed).await;
            assert!(!had_permit || key == 2, "the permit of {key} is held");
        }));
    }
    pause().await;
    scenario.semaphore.close();
    for task in tasks {
        task.await.expect("no task is aborted");
    }
    drop(held);
    scenario.finish(Vec::new()).await;
}

/// The semaphore is closed while permits are dropped and waiters leave.
pub(super) async fn close_meets_release() {
    let scenario = Scenario::new(6, if rt::one_in(2) { 6 } else { 1 });
    let mut tasks = Vec::new();
    for (key, leaves) in [(1, false), (1, true), (1, false), (2, false), (2, true)] {
        let placed = scenario.placed(key);
        tasks.push(if leaves {
            scenario.leave(placed)
        } else {
            scenario.wait(placed)
        });
    }
    pause().await;
    scenario.semaphore.close();
    scenario.finish(tasks).await;
    assert!(scenario.semaphore.try_acquire(1).is_err());
}

/// One permit for two keys with two waiters each, and a `try_acquire` in between.
pub(super) async fn one_permit_for_two_keys() {
    let scenario = Scenario::new(5, 1);
    let mut tasks: Vec<_> = [1, 2, 1, 2]
        .into_iter()
        .map(|key| {
            let scenario = scenario.clone();
            task(async move {
                let placed = scenario.placed(key);
                scenario.waits(placed).await;
            })
        })
        .collect();
    let tries = scenario.clone();
    tasks.push(task(async move {
        if let Ok(permit) = tries.semaphore.try_acquire(2) {
            tries.runs((2, 0), &BTreeSet::new(), permit).await;
        }
    }));
    scenario.finish(tasks).await;
}

/// Capacity for two: some tasks wait for it, some leave, and one task is aborted.
pub(super) async fn all_at_once() {
    let scenario = Scenario::new(2, if rt::one_in(2) { 2 } else { 1 });
    let pass = |key: Key, stays: bool| {
        let scenario = scenario.clone();
        task(async move {
            let Ok(reservation) = scenario.semaphore.reserve().await else {
                return;
            };
            let placed = scenario.acquire(key, Some(reservation));
            let placed = placed.expect("it is open");
            if stays {
                scenario.waits(placed).await;
            } else {
                scenario.leaves(placed).await;
            }
        })
    };
    let tasks = vec![pass(1, true), pass(1, false), pass(2, true), pass(1, true)];
    let aborted = {
        let semaphore = scenario.semaphore.clone();
        task(async move {
            let _ = semaphore.acquire(2).await;
        })
    };
    pause().await;
    aborted.abort();
    let _ = aborted.await;
    scenario.finish(tasks).await;
}
