//! What the tests of the keyed semaphore share. They poll by hand, so that each test decides what
//! is polled and when.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use keylane_semaphore::{Acquire, AcquireError, KeyedPermit, KeyedSemaphore};

pub(crate) type Semaphore = KeyedSemaphore<u64>;

/// A semaphore with these limits.
pub(crate) fn semaphore(capacity: usize, concurrency: usize, lane_capacity: usize) -> Semaphore {
    let builder = KeyedSemaphore::builder().capacity(capacity);
    let builder = builder.concurrency(concurrency);
    builder.lane_capacity(lane_capacity).build().unwrap()
}

/// A semaphore whose limits no test reaches.
pub(crate) fn wide() -> Semaphore {
    semaphore(100_000, 1_000, 100_000)
}

/// A waiter that has its place in the lane of a key.
#[track_caller]
pub(crate) fn acquire<K: Clone + Eq + std::hash::Hash>(
    semaphore: &KeyedSemaphore<K>,
    key: K,
) -> Acquire<K> {
    semaphore.try_reserve().unwrap().acquire(key).unwrap()
}

/// Whether the lane of a key takes no waiter. The key comes back, and so does the capacity.
pub(crate) fn is_full(semaphore: &Semaphore, key: u64) -> bool {
    let refused = semaphore.try_reserve().unwrap().acquire(key);
    refused.err() == Some(AcquireError::LaneFull(key))
}

/// Polls once.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The permit of a waiter that was granted.
pub(crate) fn permit(waiter: &mut Acquire<u64>) -> KeyedPermit<u64> {
    match poll(waiter) {
        Poll::Ready(permit) => permit.unwrap(),
        Poll::Pending => panic!("it was not granted"),
    }
}

/// Nothing is in use, and nothing is left of waiters and permits.
#[track_caller]
pub(crate) fn assert_idle<K: Clone + Eq + std::hash::Hash>(semaphore: &KeyedSemaphore<K>) {
    assert_eq!((semaphore.len(), semaphore.lanes()), (0, 0));
    assert_eq!(semaphore.permits_in_use().unwrap_or_default(), 0);
}
