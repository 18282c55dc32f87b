//! The close: waiters fail, permits stay valid, and nothing new is acquired.

use std::task::Poll;

use keylane_semaphore::{AcquireError, Closed, TryAcquireError, TryReserveError};
use keylane_testkit::scenario::Wakes;

use crate::support::{Semaphore, acquire, assert_idle, permit, poll, semaphore, wide};

#[test]
fn waiters_fail() {
    let semaphore = semaphore(10, 1, 10);
    let held = acquire(&semaphore, 0).try_into_permit().unwrap();
    let parked = acquire(&semaphore, 0);
    let called = acquire(&semaphore, 1);
    let behind = acquire(&semaphore, 1);
    let keyless = semaphore.try_reserve().unwrap().acquire_keyless().unwrap();
    let reservation: Vec<_> = std::iter::from_fn(|| semaphore.try_reserve().ok()).collect();
    assert_eq!(reservation.len(), 5);
    let mut reserve = semaphore.reserve();
    let mut waiters = [parked, called, behind, keyless];
    let wakes: Vec<_> = (0..5).map(|_| Wakes::new()).collect();
    for (waiter, wakes) in waiters.iter_mut().zip(&wakes) {
        assert!(wakes.poll(waiter).is_pending());
    }
    assert!(wakes[4].poll(&mut reserve).is_pending());

    semaphore.close();
    semaphore.close();
    assert!(semaphore.is_closed());
    assert!(wakes.iter().all(|wakes| wakes.count() == 1));
    for waiter in &mut waiters {
        assert!(matches!(poll(waiter), Poll::Ready(Err(Closed))));
    }
    assert!(matches!(poll(&mut reserve), Poll::Ready(Err(Closed))));

    // The permit stays valid.
    assert_eq!(
        (semaphore.permits_in_use(), held.key()),
        (Some(1), Some(&0))
    );
    drop(waiters);
    assert_eq!((semaphore.len(), semaphore.lanes()), (6, 1));
    for (key, reservation) in (0_u64..).zip(reservation) {
        assert_eq!(
            reservation.acquire(key).unwrap_err(),
            AcquireError::Closed(key)
        );
    }
    drop(held);
    assert_idle(&semaphore);
    refuses(&semaphore);
}

fn refuses(semaphore: &Semaphore) {
    let error = semaphore.try_acquire(5).unwrap_err();
    assert!(matches!(error, TryAcquireError::Closed(5)));
    assert_eq!(error.to_string(), "the semaphore is closed");
    assert_eq!(
        semaphore.try_reserve().unwrap_err(),
        TryReserveError::Closed
    );
    assert!(matches!(
        poll(&mut semaphore.reserve()),
        Poll::Ready(Err(Closed))
    ));
    assert_idle(semaphore);
}

#[test]
fn a_waiter_that_was_granted_unseen_keeps_its_permit() {
    let semaphore = wide();
    let head = acquire(&semaphore, 1);
    let mut granted = acquire(&semaphore, 1);
    drop(head);
    let mut reserved = acquire(&semaphore, 2);
    semaphore.close();
    drop(permit(&mut granted));
    drop(permit(&mut reserved));
    assert_idle(&semaphore);
}

/// Waiters that failed are dropped in any order, also before the permit for which they waited.
#[test]
fn nothing_is_stuck_however_they_leave() {
    for first in 0..4 {
        let semaphore = semaphore(10, 1, 10);
        let held = acquire(&semaphore, 1);
        let mut all: Vec<_> = [1, 2, 2].map(|key| acquire(&semaphore, key)).into();
        all.insert(0, held);
        semaphore.close();
        drop(all.remove(first));
        assert_eq!(semaphore.len(), 3);
        drop(all.pop());
        drop(all);
        assert_idle(&semaphore);
        refuses(&semaphore);
    }
}

#[test]
fn a_reservation_is_of_no_use_after_the_close() {
    let semaphore = wide();
    let held = acquire(&semaphore, 1);
    let reservations: Vec<_> = (0..3).map(|_| semaphore.try_reserve().unwrap()).collect();
    semaphore.close();
    let mut reservations = reservations.into_iter();
    assert_eq!(
        reservations.next().unwrap().acquire(1).unwrap_err(),
        AcquireError::Closed(1)
    );
    assert_eq!(
        reservations.next().unwrap().acquire(2).unwrap_err(),
        AcquireError::Closed(2)
    );
    assert_eq!(
        reservations.next().unwrap().acquire_keyless().unwrap_err(),
        Closed
    );
    drop(held);
    assert_idle(&semaphore);
}

/// All handles are dropped, and waiters and reservations still work.
#[test]
fn without_a_handle() {
    let semaphore = wide();
    let first = acquire(&semaphore, 1);
    let mut second = acquire(&semaphore, 1);
    let reservation = semaphore.try_reserve().unwrap();
    drop(semaphore);
    drop(first);
    drop(permit(&mut second));
    drop(reservation.acquire(1).unwrap().try_into_permit().unwrap());
}
