//! `try_acquire`: a permit now, or the key back and nothing changed.

use keylane_semaphore::TryAcquireError;
use keylane_testkit::scenario::Wakes;

use crate::support::{Semaphore, acquire, assert_idle, permit, semaphore, wide};

#[track_caller]
fn assert_no_permit(semaphore: &Semaphore, key: u64) {
    let before = (
        semaphore.len(),
        semaphore.lanes(),
        semaphore.permits_in_use(),
    );
    let error = semaphore.try_acquire(key).unwrap_err();
    assert_eq!(error, TryAcquireError::NoPermits(key));
    let after = (
        semaphore.len(),
        semaphore.lanes(),
        semaphore.permits_in_use(),
    );
    assert_eq!(before, after);
}

#[test]
fn a_free_key() {
    let semaphore = wide();
    let first = semaphore.try_acquire(1).unwrap();
    let second = semaphore.try_acquire(2).unwrap();
    assert_eq!((first.key(), second.key()), (Some(&1), Some(&2)));
    assert_eq!((semaphore.len(), semaphore.permits_in_use()), (2, Some(2)));
    drop(first);
    drop(semaphore.try_acquire(1).unwrap());
    drop(second);
    assert_idle(&semaphore);
}

#[test]
fn a_key_that_is_held_or_waited_for() {
    let semaphore = wide();
    let held = semaphore.try_acquire(1).unwrap();
    assert_no_permit(&semaphore, 1);
    let mut next = acquire(&semaphore, 1);
    let wakes = Wakes::new();
    assert!(wakes.poll(&mut next).is_pending());
    assert_no_permit(&semaphore, 1);
    assert_eq!(wakes.count(), 0);
    drop(held);
    // Granted and not polled yet.
    assert_no_permit(&semaphore, 1);
    assert_eq!(wakes.count(), 1);
    drop(permit(&mut next));
    drop(semaphore.try_acquire(1).unwrap());
    assert_idle(&semaphore);
}

#[test]
fn a_full_lane() {
    let semaphore = semaphore(10, 10, 1);
    let held = semaphore.try_acquire(1).unwrap();
    assert_no_permit(&semaphore, 1);
    drop(held);
    assert_idle(&semaphore);
}

#[test]
fn all_permits_in_use() {
    let semaphore = semaphore(10, 1, 10);
    let held = semaphore.try_acquire(1).unwrap();
    assert_no_permit(&semaphore, 2);
    let mut queued = acquire(&semaphore, 3);
    assert_no_permit(&semaphore, 2);
    drop(held);
    assert_no_permit(&semaphore, 2);
    drop(permit(&mut queued));
    drop(semaphore.try_acquire(2).unwrap());
    drop(queued);
    assert_idle(&semaphore);
}

#[test]
fn no_capacity() {
    let semaphore = semaphore(1, 1, 1);
    let reservation = semaphore.try_reserve().unwrap();
    assert_no_permit(&semaphore, 1);
    drop(reservation);
    drop(semaphore.try_acquire(1).unwrap());
    assert_idle(&semaphore);
}

#[test]
fn after_the_close() {
    let semaphore = wide();
    let held = semaphore.try_acquire(1).unwrap();
    semaphore.close();
    for key in [1, 2] {
        let error = semaphore.try_acquire(key).unwrap_err();
        assert_eq!(error, TryAcquireError::Closed(key));
        assert_eq!(error.to_string(), "the semaphore is closed");
        assert_eq!(error.into_inner(), key);
    }
    drop(held);
    assert_idle(&semaphore);
}
