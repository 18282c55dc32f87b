//! What the tests of the queue share.

use std::time::Duration;

use keylane_queue::{Lease, Queue, QueueBuilder};

/// A key, and a number that counts within it.
pub(crate) type Job = (u64, u64);
pub(crate) type Jobs = Queue<u64, Job>;

pub(crate) const TIME: Duration = Duration::from_secs(30);

pub(crate) fn builder() -> QueueBuilder<u64, Job, impl Fn(&Job) -> u64 + Send + Sync + 'static> {
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
