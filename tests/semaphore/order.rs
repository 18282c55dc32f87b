//! The order of permits.

use keylane_testkit::scenario::Wakes;

use crate::support::{acquire, assert_idle, is_full, permit, poll, semaphore, wide};

#[test]
fn permits_come_in_the_order_of_acquire_whichever_is_polled_first() {
    let semaphore = wide();
    let held = acquire(&semaphore, 1).try_into_permit().unwrap();
    let mut waiters: Vec<_> = (0..5).map(|_| acquire(&semaphore, 1)).collect();
    for waiter in waiters.iter_mut().rev() {
        assert!(poll(waiter).is_pending());
    }
    drop(held);
    while !waiters.is_empty() {
        for later in waiters[1..].iter_mut().rev() {
            assert!(poll(later).is_pending());
        }
        let held = permit(&mut waiters[0]);
        assert!(
            waiters[1..]
                .iter_mut()
                .all(|waiter| poll(waiter).is_pending())
        );
        drop(held);
        drop(waiters.remove(0));
    }
    assert_idle(&semaphore);
}

#[test]
fn exclusion_holds_until_the_permit_is_dropped() {
    let semaphore = wide();
    let mut first = acquire(&semaphore, 1);
    let mut second = acquire(&semaphore, 1);
    assert!(poll(&mut second).is_pending());
    let held = permit(&mut first);
    drop(first);
    assert!(poll(&mut second).is_pending());
    assert_eq!((held.key(), second.key()), (Some(&1), Some(&1)));
    drop(held);
    drop(permit(&mut second));
    assert_idle(&semaphore);
}

/// One wake-up for each waiter, when it is granted and not earlier.
#[test]
fn only_the_next_one_is_woken() {
    let semaphore = wide();
    let held = acquire(&semaphore, 1);
    let mut waiters: Vec<_> = (0..3).map(|_| acquire(&semaphore, 1)).collect();
    let wakes: Vec<_> = (0..3).map(|_| Wakes::new()).collect();
    for (waiter, wakes) in waiters.iter_mut().zip(&wakes) {
        assert!(wakes.poll(waiter).is_pending());
        assert!(wakes.poll(waiter).is_pending());
    }
    let counts = || wakes.iter().map(|wakes| wakes.count()).collect::<Vec<_>>();
    assert_eq!(counts(), [0, 0, 0]);
    drop(held);
    assert_eq!(counts(), [1, 0, 0]);
    drop(permit(&mut waiters[0]));
    assert_eq!(counts(), [1, 1, 0]);
    drop(waiters);
    assert_eq!(counts()[..2], [1, 1]);
    assert_idle(&semaphore);
}

#[test]
fn a_key_whose_permit_is_never_dropped_blocks_no_other() {
    let semaphore = semaphore(100, 50, 10);
    let stuck = acquire(&semaphore, 0);
    let behind: Vec<_> = (0..9).map(|_| acquire(&semaphore, 0)).collect();
    assert!(is_full(&semaphore, 0));
    for key in 1..1_000 {
        let first = acquire(&semaphore, key).try_into_permit().unwrap();
        let mut second = acquire(&semaphore, key);
        assert!(poll(&mut second).is_pending());
        drop(first);
        drop(permit(&mut second));
    }
    assert_eq!((semaphore.len(), semaphore.lanes()), (10, 1));
    drop((stuck, behind));
    assert_idle(&semaphore);
}

#[test]
fn heads_wait_for_a_permit_first_come_first_served() {
    let semaphore = semaphore(100, 1, 100);
    let held = acquire(&semaphore, 1).try_into_permit().unwrap();
    let mut heads: Vec<_> = (2..6).map(|key| acquire(&semaphore, key)).collect();
    for head in heads.iter_mut().rev() {
        assert!(poll(head).is_pending());
    }
    drop(held);
    for at in 0..heads.len() {
        assert!(
            heads[at + 1..]
                .iter_mut()
                .all(|head| poll(head).is_pending())
        );
        // A newcomer goes behind those that wait, though a permit is about to be dropped.
        let mut late = acquire(&semaphore, 100 + at as u64);
        let held = permit(&mut heads[at]);
        assert_eq!(semaphore.permits_in_use(), Some(1));
        assert!(poll(&mut late).is_pending());
        drop(held);
        assert!(poll(&mut late).is_pending() || at + 1 == heads.len());
    }
    drop(heads);
    assert_idle(&semaphore);
}

/// The next head of a lane is queued again, behind the heads of other keys.
#[test]
fn a_long_lane_alternates_with_other_keys() {
    let semaphore = semaphore(100, 1, 100);
    let mut hot: Vec<_> = (0..3).map(|_| acquire(&semaphore, 1)).collect();
    let mut other = acquire(&semaphore, 2);
    let held = permit(&mut hot[0]);
    drop(held);
    assert!(poll(&mut hot[1]).is_pending());
    drop(permit(&mut other));
    drop(permit(&mut hot[1]));
    drop(permit(&mut hot[2]));
    drop((hot, other));
    assert_idle(&semaphore);
}

#[test]
fn a_permit_that_was_granted_is_had_without_a_poll() {
    let semaphore = wide();
    let first = acquire(&semaphore, 1);
    let second = acquire(&semaphore, 1).try_into_permit().unwrap_err();
    assert_eq!(format!("{second:?}"), "Acquire { granted: false, .. }");
    drop(first);
    assert_eq!(format!("{second:?}"), "Acquire { granted: true, .. }");
    drop(second.try_into_permit().unwrap());
    assert_idle(&semaphore);
}
