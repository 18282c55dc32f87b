//! Waiters without a key: they wait in no lane, and count for every other limit.

use crate::support::{acquire, assert_idle, permit, poll, semaphore};

#[test]
fn without_a_key_no_waiter_waits_for_another() {
    let semaphore = semaphore(4, 4, 1);
    let waiters: Vec<_> = std::iter::from_fn(|| semaphore.try_reserve().ok())
        .map(|reservation| reservation.acquire_keyless().unwrap())
        .collect();
    assert_eq!(
        (waiters.len(), semaphore.len(), semaphore.lanes()),
        (4, 4, 0)
    );
    assert!(waiters.iter().all(|waiter| waiter.key().is_none()));
    let permits: Vec<_> = waiters
        .into_iter()
        .map(|waiter| waiter.try_into_permit().unwrap())
        .collect();
    assert!(permits.iter().all(|permit| permit.key().is_none()));
    drop(permits);
    assert_idle(&semaphore);
}

#[test]
fn they_wait_for_a_permit_in_one_line_with_all_others() {
    let semaphore = semaphore(10, 1, 10);
    let keyless = || semaphore.try_reserve().unwrap().acquire_keyless().unwrap();
    let held = keyless();
    let (mut first, gone, mut keyed, mut last) =
        (keyless(), keyless(), acquire(&semaphore, 1), keyless());
    assert!(poll(&mut last).is_pending());
    drop(gone);
    drop(held);
    drop(permit(&mut first));
    drop(permit(&mut keyed));
    let granted = keyless();
    assert!(poll(&mut last).is_ready());
    drop(granted);
    drop(last);
    assert_idle(&semaphore);
}
