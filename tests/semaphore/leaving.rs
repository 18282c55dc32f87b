//! A waiter that is dropped leaves at once, whatever its stage.

use std::task::Poll;

use keylane_semaphore::AcquireError;
use keylane_testkit::scenario::Wakes;

use crate::support::{acquire, assert_idle, permit, poll, semaphore, wide};

#[test]
fn while_parked() {
    let semaphore = wide();
    let mut lane: Vec<_> = (0..6).map(|_| acquire(&semaphore, 1)).collect();
    for leaves in [5, 1, 2] {
        drop(lane.remove(leaves));
    }
    assert_eq!(semaphore.len(), 3);
    for at in 0..3 {
        assert!(
            lane[at + 1..]
                .iter_mut()
                .all(|waiter| poll(waiter).is_pending())
        );
        drop(permit(&mut lane[at]));
    }
    assert_idle(&semaphore);
}

/// The head of a lane waits for a permit, and leaves: the next one of its lane is queued.
#[test]
fn while_queued() {
    let semaphore = semaphore(100, 1, 100);
    let held = acquire(&semaphore, 0);
    let mut lane: Vec<_> = (0..3).map(|_| acquire(&semaphore, 1)).collect();
    let mut other = acquire(&semaphore, 2);
    let wakes = Wakes::new();
    assert!(wakes.poll(&mut lane[1]).is_pending());
    drop(lane.remove(0));
    assert_eq!(
        (
            semaphore.len(),
            semaphore.permits_in_use(),
            semaphore.lanes()
        ),
        (4, Some(1), 3)
    );
    assert_eq!(
        wakes.count(),
        0,
        "it has moved up, and its permit has not come"
    );
    drop(held);
    // It was queued after the other key.
    drop(permit(&mut other));
    assert_eq!(wakes.count(), 1);
    drop(permit(&mut lane[0]));
    drop(permit(&mut lane[1]));
    assert_idle(&semaphore);
}

#[test]
fn while_queued_with_no_waiter_behind() {
    let semaphore = semaphore(100, 1, 100);
    let held = acquire(&semaphore, 0);
    for _ in 0..3 {
        let heads: Vec<_> = (1..9).map(|key| acquire(&semaphore, key)).collect();
        drop(heads);
        assert_eq!(
            (
                semaphore.len(),
                semaphore.permits_in_use(),
                semaphore.lanes()
            ),
            (1, Some(1), 1)
        );
    }
    drop(held);
    drop(acquire(&semaphore, 5).try_into_permit().unwrap());
    assert_idle(&semaphore);
}

#[test]
fn while_granted_and_never_polled() {
    let semaphore = semaphore(100, 1, 100);
    let held = acquire(&semaphore, 1);
    let granted = acquire(&semaphore, 1);
    let mut next = acquire(&semaphore, 1);
    let mut other = acquire(&semaphore, 2);
    drop(other);
    drop(held);
    assert!(poll(&mut next).is_pending());
    assert_eq!(semaphore.permits_in_use(), Some(1), "its permit has come");
    other = acquire(&semaphore, 2);
    assert!(poll(&mut other).is_pending());
    drop(granted);
    drop(permit(&mut other));
    drop(permit(&mut next));
    assert_idle(&semaphore);
}

#[test]
fn at_the_head_and_never_polled() {
    let semaphore = wide();
    drop(acquire(&semaphore, 1));
    let first = acquire(&semaphore, 1);
    let mut second = acquire(&semaphore, 1);
    drop(first);
    drop(permit(&mut second));
    assert_idle(&semaphore);
}

#[test]
fn a_reservation_that_was_waited_for() {
    let semaphore = semaphore(2, 2, 2);
    let held = [
        semaphore.try_reserve().unwrap(),
        semaphore.try_reserve().unwrap(),
    ];
    let mut waits: Vec<_> = (0..4).map(|_| semaphore.reserve()).collect();
    for reserve in &mut waits {
        assert!(poll(reserve).is_pending());
    }
    drop(semaphore.reserve());
    // In the line, then with a slot that was granted.
    drop(waits.remove(1));
    drop(held);
    drop(waits.remove(0));
    let reservations: Vec<_> = waits.iter_mut().map(poll).collect();
    assert!(
        reservations
            .iter()
            .all(|reservation| matches!(reservation, Poll::Ready(Ok(_))))
    );
    assert_eq!(semaphore.len(), 2);
    assert!(semaphore.try_reserve().is_err());
    drop(reservations);
    assert_idle(&semaphore);
    assert!(semaphore.try_reserve().is_ok());
}

/// At each of its awaits.
#[test]
fn an_acquire_that_is_dropped() {
    let semaphore = semaphore(2, 1, 2);
    let reservations = [
        semaphore.try_reserve().unwrap(),
        semaphore.try_reserve().unwrap(),
    ];
    let mut waits = Box::pin(semaphore.acquire(1));
    assert!(poll(&mut waits).is_pending());
    drop(waits);
    let mut waits = Box::pin(semaphore.acquire(1));
    assert!(poll(&mut waits).is_pending());
    drop(reservations);
    assert_eq!(semaphore.len(), 1, "reservation is on its way");
    drop(waits);
    let held = acquire(&semaphore, 1);
    for key in [1, 2] {
        let mut waits = Box::pin(semaphore.acquire(key));
        assert!(poll(&mut waits).is_pending());
        assert_eq!(semaphore.len(), 2);
        drop(waits);
        assert_eq!((semaphore.len(), semaphore.lanes()), (1, 1));
    }
    let mut waits = Box::pin(semaphore.acquire(1));
    assert!(poll(&mut waits).is_pending());
    drop(held);
    drop(waits);
    assert_idle(&semaphore);
}

#[test]
fn an_acquire_that_is_refused() {
    let semaphore = semaphore(3, 1, 1);
    let held = acquire(&semaphore, 1);
    let refused = poll(&mut Box::pin(semaphore.acquire(1)));
    assert!(matches!(
        refused,
        Poll::Ready(Err(AcquireError::LaneFull(1)))
    ));
    semaphore.close();
    let refused = poll(&mut Box::pin(semaphore.acquire(2)));
    assert!(matches!(refused, Poll::Ready(Err(AcquireError::Closed(2)))));
    drop(held);
    assert_idle(&semaphore);
}

/// Every set of leavers in a lane of five behind a head: the rest are granted in their order.
#[test]
fn waiters_behind_move_up_in_their_order() {
    for mask in 0..32_u32 {
        for backwards in [false, true] {
            let semaphore = wide();
            let head = acquire(&semaphore, 1);
            let mut lane: Vec<_> = (0..5).map(|_| Some(acquire(&semaphore, 1))).collect();
            let mut leavers: Vec<usize> = (0..5).filter(|at| mask & (1 << at) != 0).collect();
            if backwards {
                leavers.reverse();
            }
            for at in leavers {
                lane[at] = None;
            }
            drop(head);
            let mut rest: Vec<_> = lane.into_iter().flatten().collect();
            assert_eq!(semaphore.len(), rest.len());
            for at in 0..rest.len() {
                assert!(
                    rest[at + 1..]
                        .iter_mut()
                        .all(|waiter| poll(waiter).is_pending())
                );
                drop(permit(&mut rest[at]));
            }
            assert_idle(&semaphore);
        }
    }
}

/// Waiters of every stage leave: parked, queued, granted, polled or not.
#[test]
fn leaving_wakes_no_waiter_without_a_reason() {
    let semaphore = semaphore(100, 1, 100);
    let held = acquire(&semaphore, 0);
    let mut lane: Vec<_> = (0..4).map(|_| acquire(&semaphore, 1)).collect();
    let wakes: Vec<_> = (0..4).map(|_| Wakes::new()).collect();
    for (waiter, wakes) in lane.iter_mut().zip(&wakes) {
        assert!(wakes.poll(waiter).is_pending());
    }
    drop(lane.remove(1));
    drop(lane.remove(0));
    assert_eq!(wakes.iter().map(|wakes| wakes.count()).sum::<usize>(), 0);
    drop(held);
    assert_eq!(wakes[2].count(), 1);
    drop(lane);
    assert_eq!((wakes[0].count(), wakes[1].count()), (0, 0));
    assert_idle(&semaphore);
}
