//! Leases that expire, and workers that are late.

use std::time::Duration;

use keylane_queue::{Lease, LeaseError, Redelivery};
use keylane_testkit::scenario::{MS, quiet, within};
use tokio::time::Instant;

use crate::support::{TIME, builder, holding, lease, rest};

#[tokio::test(start_paused = true)]
async fn a_waiting_dequeue_gets_the_message_when_its_lease_expires() {
    let queue = holding(&[(1, 1), (1, 2)]);
    let late = lease(&queue);
    let begun = Instant::now();
    let next = within(queue.dequeue()).await.unwrap();
    assert_eq!(begun.elapsed(), TIME);
    assert_eq!((*next, next.attempt()), ((1, 1), 2), "at the head");
    assert_eq!(*late, (1, 1), "a late worker can still read it");
    assert_eq!(
        (late.expires_at(), late.time_left()),
        (None, Duration::ZERO)
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_worker_is_refused() {
    type End = fn(Lease<u64, (u64, u64)>) -> Result<(), LeaseError>;
    let ends: [End; 5] = [
        |lease| lease.complete(),
        |lease| lease.fail(Redelivery::Now),
        |lease| lease.fail(Redelivery::After(MS)),
        |lease| lease.fail(Redelivery::Never),
        |lease| lease.give_up().map(drop),
    ];
    for end in ends {
        // The message is ready; another worker has it; another worker has completed it.
        for again in 0..3 {
            let queue = holding(&[(1, 1), (1, 2)]);
            let late = lease(&queue);
            tokio::time::sleep(TIME).await;
            let mut other = (again > 0).then(|| lease(&queue));
            if again == 2
                && let Some(other) = other.take()
            {
                other.complete().unwrap();
            }
            assert_eq!(late.extend(TIME), Err(LeaseError::Expired));
            assert_eq!(end(late), Err(LeaseError::Expired));
            if let Some(other) = other {
                assert_eq!(other.complete(), Ok(()), "the other one is not disturbed");
            }
            let left: &[_] = if again == 0 {
                &[(1, 1), (1, 2)]
            } else {
                &[(1, 2)]
            };
            assert_eq!(rest(&queue), left);
            assert_eq!(queue.report().completed, 2);
        }
    }
}

/// A late worker that drops its lease takes nothing from the worker that has the message now.
#[tokio::test(start_paused = true)]
async fn a_late_drop_changes_nothing() {
    let queue = holding(&[(1, 1), (1, 2)]);
    let late = lease(&queue);
    tokio::time::sleep(TIME).await;
    let other = lease(&queue);
    drop(late);
    assert!(queue.try_dequeue().is_err(), "the key is leased");
    other.complete().unwrap();
    assert_eq!(rest(&queue), [(1, 2)]);
}

#[tokio::test(start_paused = true)]
async fn an_extended_lease_lasts_that_long() {
    let queue = holding(&[(1, 1), (2, 1)]);
    let (one, two) = (lease(&queue), lease(&queue));
    tokio::time::sleep(TIME - MS).await;
    one.extend(2 * TIME).unwrap();
    assert_eq!(one.time_left(), 2 * TIME);
    assert_eq!(one.expires_at(), Some(Instant::now() + 2 * TIME));
    one.extend(MS).unwrap();
    assert_eq!(one.time_left(), 2 * TIME, "an extension is never shorter");
    let begun = Instant::now();
    let again = within(queue.dequeue()).await.unwrap();
    assert_eq!((*again, begun.elapsed()), ((2, 1), MS));
    again.complete().unwrap();
    assert_eq!(two.complete(), Err(LeaseError::Expired));
    let again = within(queue.dequeue()).await.unwrap();
    assert_eq!((*again, begun.elapsed()), ((1, 1), 2 * TIME));
    assert_eq!(one.complete(), Err(LeaseError::Expired));
}

/// Leases that are extended expire in the order of their new times.
#[tokio::test(start_paused = true)]
async fn extended_leases_expire_in_order() {
    let queue = holding(&[(1, 1), (2, 1), (3, 1), (4, 1)]);
    let leases: Vec<_> = (0..4).map(|_| lease(&queue)).collect();
    let begun = Instant::now();
    for (lease, seconds) in leases.iter().zip([50, 31, 40, 90]) {
        lease.extend(Duration::from_secs(seconds)).unwrap();
    }
    let mut ends = Vec::new();
    for _ in 0..4 {
        let lease = within(queue.dequeue()).await.unwrap();
        ends.push((lease.0, begun.elapsed().as_secs()));
        lease.complete().unwrap();
    }
    assert_eq!(ends, [(2, 31), (3, 40), (1, 50), (4, 90)]);
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_with_each_lease() {
    let queue = holding(&[(1, 1), (2, 1)]);
    let mut last = 0;
    for _ in 0..6 {
        let lease = lease(&queue);
        assert!(lease.token() > last);
        last = lease.token();
    }
    // Also after the lane was removed in between.
    assert_eq!(rest(&queue).len(), 2);
    queue.try_enqueue((1, 2)).unwrap();
    assert!(lease(&queue).token() > last);
}

/// More leases than the driver ends at once expire at the same time.
#[tokio::test(start_paused = true)]
async fn a_thousand_leases_expire_at_once() {
    let queue = builder().capacity(2_000).spawn().unwrap();
    for key in 0..1_000 {
        queue.enqueue((key, 1)).await.unwrap();
    }
    let late: Vec<_> = (0..1_000).map(|_| lease(&queue)).collect();
    assert_eq!(queue.leased(), 1_000);
    tokio::time::sleep(TIME).await;
    quiet().await;
    assert_eq!((queue.leased(), queue.len()), (0, 1_000));
    assert_eq!(rest(&queue).len(), 1_000);
    assert!(late.into_iter().all(|late| late.complete().is_err()));
}
