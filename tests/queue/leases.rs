//! Leases that run out, and who is late.

use std::time::Duration;

use keylane::{Again, LeaseError};
use tokio::time::Instant;

use crate::rig::{MS, TIME, builder, holding, lease, quiet, rest, within};

#[tokio::test(start_paused = true)]
async fn a_lease_that_runs_out_comes_to_who_waits_at_that_time() {
    let queue = holding(&[(1, 1), (1, 2)]);
    let late = lease(&queue);
    let begun = Instant::now();
    let next = within(queue.dequeue()).await.unwrap();
    assert_eq!(begun.elapsed(), TIME);
    assert_eq!((*next, next.attempt()), ((1, 1), 2), "at the head");
    assert_eq!(*late, (1, 1), "who is late can still read it");
    assert_eq!(
        (late.expires_at(), late.time_left()),
        (None, Duration::ZERO)
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_late_is_refused() {
    type End = fn(keylane::Lease<u64, (u64, u64)>) -> Result<(), LeaseError>;
    let ends: [End; 5] = [
        |lease| lease.complete(),
        |lease| lease.fail(Again::Now),
        |lease| lease.fail(Again::After(MS)),
        |lease| lease.fail(Again::Never),
        |lease| lease.give_up().map(drop),
    ];
    for end in ends {
        // Nobody has it again; somebody has it; somebody has completed it.
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

/// A late worker that drops its lease takes nothing away from the one who has it now.
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

/// Leases that are extended run out in the order of their new ends.
#[tokio::test(start_paused = true)]
async fn leases_run_out_one_by_one() {
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
    // Also after the key was away in between.
    assert_eq!(rest(&queue).len(), 2);
    queue.try_enqueue((1, 2)).unwrap();
    assert!(lease(&queue).token() > last);
}

/// More leases than are moved at once run out at the same time.
#[tokio::test(start_paused = true)]
async fn a_thousand_leases_run_out_at_once() {
    let queue = builder().limit(2_000).spawn().unwrap();
    for key in 0..1_000 {
        queue.enqueue((key, 1)).await.unwrap();
    }
    let late: Vec<_> = (0..1_000).map(|_| lease(&queue)).collect();
    assert_eq!(queue.leased(), 1_000);
    tokio::time::sleep(TIME).await;
    quiet().await;
    assert_eq!((queue.leased(), queue.size()), (0, 1_000));
    assert_eq!(rest(&queue).len(), 1_000);
    assert!(late.into_iter().all(|late| late.complete().is_err()));
}
