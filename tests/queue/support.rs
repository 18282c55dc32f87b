//! What the tests of the queue share.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use keylane::Queue;
use keylane::queue::{Builder, Lease};

/// A key, and a number that counts within it.
pub(crate) type Job = (u64, u64);
pub(crate) type Jobs = Queue<u64, Job>;

pub(crate) const TIME: Duration = Duration::from_secs(30);
pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) fn builder() -> Builder<u64, Job, impl Fn(&Job) -> u64 + Send + Sync + 'static> {
    Queue::builder(|job: &Job| job.0).lease_time(TIME)
}

pub(crate) fn jobs() -> Jobs {
    builder().spawn().unwrap()
}

/// A queue that holds these.
pub(crate) fn holding(jobs: &[Job]) -> Jobs {
    let queue = self::jobs();
    for job in jobs {
        queue.try_enqueue(*job).unwrap();
    }
    queue
}

/// Leases and completes the next message, and returns it.
pub(crate) fn next(queue: &Jobs) -> Option<Job> {
    let lease = queue.try_dequeue().ok()?;
    let job = *lease;
    lease.complete().unwrap();
    Some(job)
}

/// Leases and completes until nothing is ready.
pub(crate) fn rest(queue: &Jobs) -> Vec<Job> {
    std::iter::from_fn(|| next(queue)).collect()
}

pub(crate) fn lease(queue: &Jobs) -> Lease<u64, Job> {
    queue.try_dequeue().unwrap()
}

/// Lets a millisecond of paused time pass: by then every task waits for time or for another task.
pub(crate) async fn quiet() {
    tokio::time::sleep(MS).await;
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(3600), work)
        .await
        .expect("it ends")
}

/// Polls a future `polls` times and then drops it, with `between` after each poll. Returns what the
/// future returned, if it did.
pub(crate) async fn give_up_after<F: Future>(
    polls: usize,
    future: F,
    mut between: impl AsyncFnMut(usize),
) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for poll in 0..polls {
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await;
        if let Poll::Ready(answer) = polled {
            return Some(answer);
        }
        between(poll).await;
    }
    None
}
