//! Each limit, and the error there.

use std::task::Poll;

use keylane_semaphore::{
    AcquireError, KeyedSemaphore, SettingError, TryAcquireError, TryReserveError,
};

use crate::support::{acquire, assert_idle, is_full, permit, poll, semaphore};

#[test]
fn the_capacity_counts_waiters_permits_and_reservations() {
    let semaphore = semaphore(3, 3, 3);
    assert_eq!(semaphore.permits_in_use(), None);
    let held = acquire(&semaphore, 1).try_into_permit().unwrap();
    let parked = acquire(&semaphore, 1);
    let reservation = semaphore.try_reserve().unwrap();
    assert_eq!(semaphore.len(), 3);
    assert_eq!(semaphore.try_reserve().unwrap_err(), TryReserveError::Full);
    let error = semaphore.try_acquire(9).unwrap_err();
    assert!(matches!(error, TryAcquireError::NoPermits(9)));
    assert_eq!(
        error.to_string(),
        "no permit is available: wait with `acquire`"
    );
    assert_eq!(error.into_inner(), 9);
    drop(reservation);
    drop(acquire(&semaphore, 9));
    drop((held, parked));
    assert_idle(&semaphore);
}

#[test]
fn capacity_goes_to_those_that_wait_first_come_first_served() {
    let semaphore = semaphore(1, 1, 1);
    let held = acquire(&semaphore, 1);
    let mut waits: Vec<_> = (0..3).map(|_| semaphore.reserve()).collect();
    for reserve in &mut waits {
        assert!(poll(reserve).is_pending());
    }
    drop(held);
    for at in 0..waits.len() {
        let error = semaphore.try_reserve().unwrap_err();
        assert_eq!(error, TryReserveError::Full);
        assert_eq!(
            error.to_string(),
            "the semaphore is at its capacity: wait with `reserve`, or raise `capacity`"
        );
        assert!(semaphore.try_acquire(7).is_err());
        assert!(
            waits[at + 1..]
                .iter_mut()
                .all(|reserve| poll(reserve).is_pending())
        );
        let Poll::Ready(Ok(reservation)) = poll(&mut waits[at]) else {
            panic!("there is reservation");
        };
        assert_eq!(semaphore.len(), 1);
        drop(reservation.acquire(at as u64).unwrap());
    }
    assert_idle(&semaphore);
    drop(acquire(&semaphore, 7));
}

#[test]
fn a_full_lane_gives_the_key_and_the_capacity_back() {
    let semaphore = semaphore(10, 10, 2);
    let mut lane = [acquire(&semaphore, 1), acquire(&semaphore, 1)];
    let error = semaphore.try_reserve().unwrap().acquire(1).unwrap_err();
    assert_eq!(error, AcquireError::LaneFull(1));
    assert_eq!(
        error.to_string(),
        "the lane of the key is full: try again later, or raise `lane_capacity`"
    );
    assert_eq!(error.into_inner(), 1);
    assert_eq!(semaphore.len(), 2);
    let other = acquire(&semaphore, 2);
    drop(permit(&mut lane[0]));
    let third = acquire(&semaphore, 1);
    assert!(is_full(&semaphore, 1));
    drop((lane, other, third));
    assert_idle(&semaphore);
}

/// A waiter that has left, swept out or not, does not count for its lane.
#[test]
fn a_lane_is_as_full_as_it_has_waiters() {
    let semaphore = semaphore(100, 100, 10);
    let mut lane: Vec<_> = (0..10).map(|_| acquire(&semaphore, 1)).collect();
    for leaves in [3, 5, 1, 8, 2, 2, 7, 1] {
        drop(lane.remove(leaves));
        assert_eq!(semaphore.len(), 9);
        lane.push(acquire(&semaphore, 1));
        assert!(is_full(&semaphore, 1));
    }
    for leaves in [9, 4, 2, 1] {
        drop(lane.remove(leaves));
    }
    lane.extend((0..4).map(|_| acquire(&semaphore, 1)));
    assert!(is_full(&semaphore, 1));
    for mut waiter in lane {
        drop(permit(&mut waiter));
    }
    assert_idle(&semaphore);
}

#[test]
fn at_most_as_many_permits_as_the_concurrency() {
    let semaphore = semaphore(10, 2, 10);
    let mut waiters: Vec<_> = (0..4).map(|key| acquire(&semaphore, key)).collect();
    let first = permit(&mut waiters[0]);
    let second = permit(&mut waiters[1]);
    assert!(
        waiters[2..]
            .iter_mut()
            .all(|waiter| poll(waiter).is_pending())
    );
    assert_eq!(semaphore.permits_in_use(), Some(2));
    drop(first);
    let third = permit(&mut waiters[2]);
    assert!(poll(&mut waiters[3]).is_pending());
    assert_eq!(semaphore.permits_in_use(), Some(2));
    drop((second, third));
    assert_eq!(semaphore.permits_in_use(), Some(1));
    drop(waiters);
    assert_idle(&semaphore);
}

/// If the capacity is the lower limit, a waiter waits for its key only.
#[test]
fn as_many_permits_as_the_capacity() {
    let semaphore = semaphore(4, 4, 4);
    let first = acquire(&semaphore, 1);
    let mut second = acquire(&semaphore, 1);
    let mut third = acquire(&semaphore, 1);
    assert!(acquire(&semaphore, 2).try_into_permit().is_ok());
    assert!(poll(&mut third).is_pending());
    drop(first);
    drop(second.try_into_permit().unwrap());
    second = third;
    drop(permit(&mut second));
    assert_idle(&semaphore);
}

#[test]
fn settings_that_are_refused() {
    let builder = || KeyedSemaphore::<u8>::builder();
    let errors = [
        builder().capacity(0).build(),
        builder().concurrency(0).build(),
        builder().lane_capacity(0).build(),
        builder().capacity(usize::MAX).build(),
        builder().shards(3).build(),
        builder().shards(1).build(),
    ];
    let errors: Vec<_> = errors.into_iter().map(|built| built.err()).collect();
    assert_eq!(errors[0], Some(SettingError::Zero("capacity")));
    assert_eq!(errors[1], Some(SettingError::Zero("concurrency")));
    assert_eq!(errors[2], Some(SettingError::Zero("lane_capacity")));
    assert_eq!(errors[3], Some(SettingError::TooLarge("capacity")));
    assert_eq!(
        errors[4..],
        [Some(SettingError::Shards(3)), Some(SettingError::Shards(1))]
    );
    let most = usize::MAX >> 3;
    let semaphore = builder()
        .capacity(most)
        .concurrency(most - 1)
        .shards(2)
        .build()
        .unwrap();
    drop(acquire(&semaphore, 1));
    assert_idle(&semaphore);
}
