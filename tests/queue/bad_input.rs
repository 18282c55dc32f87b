//! Settings and times that make no sense are refused with a type, and leave the queue as it was.

use std::time::Duration;

use keylane_queue::{LeaseError, Queue, Redelivery, SpawnError};
use keylane_testkit::scenario::{MS, quiet};

use crate::support::{TIME, builder, holding, lease, rest};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[tokio::test(start_paused = true)]
async fn a_capacity_of_zero_or_beyond_counting() {
    assert_eq!(
        builder().capacity(0).spawn().unwrap_err(),
        SpawnError::Zero("capacity")
    );
    assert_eq!(
        builder().capacity(usize::MAX).spawn().unwrap_err(),
        SpawnError::TooLarge("capacity")
    );
    let most = builder().capacity(usize::MAX >> 3).spawn().unwrap();
    most.enqueue((1, 1)).await.unwrap();
    assert_eq!(rest(&most), [(1, 1)]);
    assert_eq!(
        builder().lane_capacity(0).spawn().unwrap_err(),
        SpawnError::Zero("lane_capacity")
    );
}

#[tokio::test(start_paused = true)]
async fn shards_that_are_no_power_of_two() {
    for shards in [0, 1, 3, 65_535] {
        assert_eq!(
            builder().shards(shards).spawn().unwrap_err(),
            SpawnError::Shards(shards)
        );
    }
    assert_eq!(
        builder().shards(1 << 17).spawn().unwrap_err(),
        SpawnError::TooLarge("shards")
    );
    for shards in [2, 1 << 16] {
        let queue = builder().shards(shards).spawn().unwrap();
        queue.enqueue((1, 1)).await.unwrap();
        assert_eq!(rest(&queue), [(1, 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_time_of_zero_or_beyond_the_clock() {
    assert_eq!(
        builder().lease_time(Duration::ZERO).spawn().unwrap_err(),
        SpawnError::Zero("lease_time")
    );
    assert_eq!(
        builder().lease_time(Duration::MAX).spawn().unwrap_err(),
        SpawnError::TooLarge("lease_time")
    );
    assert_eq!(
        builder()
            .lease_time(YEAR + Duration::from_nanos(1))
            .spawn()
            .unwrap_err(),
        SpawnError::TooLarge("lease_time")
    );
    for time in [Duration::from_nanos(1), YEAR] {
        let queue = builder().lease_time(time).spawn().unwrap();
        queue.enqueue((1, 1)).await.unwrap();
        let held = lease(&queue);
        tokio::time::sleep(time).await;
        quiet().await;
        assert_eq!(held.complete(), Err(LeaseError::Expired));
        assert_eq!((queue.leased(), queue.len()), (0, 1));
    }
}

#[test]
fn no_runtime_and_no_timers() {
    assert_eq!(builder().spawn().unwrap_err(), SpawnError::NoRuntime);
    let bare = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    bare.block_on(async {
        assert_eq!(builder().spawn().unwrap_err(), SpawnError::NoTimers);
    });
}

#[tokio::test(start_paused = true)]
async fn an_extension_of_zero_or_beyond_the_clock_leaves_the_lease_as_it_was() {
    let queue = holding(&[(1, 1)]);
    let held = lease(&queue);
    assert_eq!(held.extend(Duration::ZERO), Err(LeaseError::Zero));
    assert_eq!(held.extend(Duration::MAX), Err(LeaseError::TooLong));
    assert_eq!(held.time_left(), TIME);
    held.extend(YEAR).unwrap();
    assert_eq!(held.time_left(), YEAR);
    held.complete().unwrap();
}

/// A delay that no clock can hold is a year.
#[tokio::test(start_paused = true)]
async fn a_retry_beyond_the_clock_is_a_year_away() {
    let queue = holding(&[(1, 1)]);
    lease(&queue)
        .fail(Redelivery::After(Duration::MAX))
        .unwrap();
    tokio::time::sleep(YEAR - MS).await;
    assert!(queue.try_dequeue().is_err());
    tokio::time::sleep(2 * MS).await;
    assert_eq!(rest(&queue), [(1, 1)]);
    lease_and_fail_with_zero().await;
}

async fn lease_and_fail_with_zero() {
    let queue = holding(&[(1, 1)]);
    lease(&queue)
        .fail(Redelivery::After(Duration::ZERO))
        .unwrap();
    assert_eq!(rest(&queue), [(1, 1)]);
}

/// One worker cannot complete twice: the lease is moved (see the compile-fail example of `Lease`).
/// Two workers of one message can try, and one of them is refused.
#[tokio::test(start_paused = true)]
async fn a_message_is_completed_once() {
    let queue = holding(&[(1, 1), (1, 2)]);
    let late = lease(&queue);
    tokio::time::sleep(TIME).await;
    let first = lease(&queue);
    assert_eq!(first.complete(), Ok(()));
    // The slot of the expired lease is in use again, by another message.
    let second = lease(&queue);
    assert_eq!(late.complete(), Err(LeaseError::Expired));
    assert_eq!(second.complete(), Ok(()));
    let report = queue.drain().await;
    assert_eq!((report.accepted, report.completed), (2, 2));
}

/// A message may be larger than anything, and its key may be anything.
#[tokio::test(start_paused = true)]
async fn keys_and_messages_of_any_type() {
    let queue = Queue::builder(|message: &String| message.len())
        .hasher(std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default())
        .spawn()
        .unwrap();
    queue.enqueue("one".into()).await.unwrap();
    let lease = queue.dequeue().await.unwrap();
    assert_eq!((lease.as_str(), lease.key()), ("one", &3));
    assert_eq!(lease.message(), "one");
    lease.complete().unwrap();
}
