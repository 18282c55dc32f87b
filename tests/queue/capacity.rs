//! The capacity, and the tasks that wait at it.

use keylane_queue::{EnqueueError, Redelivery, TryEnqueueError};
use keylane_testkit::scenario::{quiet, within};

use crate::support::{Jobs, TIME, builder, lease, next, rest};

fn full() -> Jobs {
    let queue = builder().capacity(2).spawn().unwrap();
    queue.try_enqueue((1, 1)).unwrap();
    queue.try_enqueue((1, 2)).unwrap();
    queue
}

#[tokio::test(start_paused = true)]
async fn enqueue_waits_at_the_capacity_in_order() {
    let queue = full();
    assert_eq!(queue.capacity(), 2);
    assert_eq!(
        queue.try_enqueue((1, 3)),
        Err(TryEnqueueError::Full((1, 3)))
    );
    let mut senders = Vec::new();
    for number in 3..=5 {
        let queue = queue.clone();
        senders.push(tokio::spawn(
            async move { queue.enqueue((1, number)).await },
        ));
        quiet().await;
    }
    for number in 1..=5 {
        assert_eq!(next(&queue), Some((1, number)));
        quiet().await;
        assert!(queue.len() <= 2);
    }
    for sender in senders {
        sender.await.unwrap().unwrap();
    }
    assert!(queue.is_empty());
}

/// Each way to settle frees room; each way to come back does not.
#[tokio::test(start_paused = true)]
async fn each_settlement_frees_its_room() {
    let queue = full();
    drop(lease(&queue));
    lease(&queue).fail(Redelivery::Now).unwrap();
    assert!(queue.try_enqueue((2, 1)).is_err());
    lease(&queue).complete().unwrap();
    queue.try_enqueue((2, 1)).unwrap();
    assert!(queue.try_enqueue((2, 2)).is_err());
    lease(&queue).fail(Redelivery::Never).unwrap();
    queue.try_enqueue((2, 2)).unwrap();
    assert!(queue.try_enqueue((2, 3)).is_err());
    assert_eq!(queue.take_parked().len(), 2);
    queue.try_enqueue((2, 3)).unwrap();
    queue.try_enqueue((2, 4)).unwrap();
    assert!(queue.try_enqueue((2, 5)).is_err());
}

#[tokio::test(start_paused = true)]
async fn enqueue_is_refused_when_the_queue_closes() {
    let queue = full();
    let sender = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.enqueue((7, 7)).await })
    };
    quiet().await;
    queue.close();
    assert!(queue.is_closed());
    assert_eq!(
        within(sender).await.unwrap(),
        Err(EnqueueError::Closed((7, 7)))
    );
    assert_eq!(
        queue.enqueue((7, 8)).await,
        Err(EnqueueError::Closed((7, 8)))
    );
    assert_eq!(
        queue.try_enqueue((7, 9)),
        Err(TryEnqueueError::Closed((7, 9)))
    );
    assert_eq!(queue.report().accepted, 2);
}

/// A full lane refuses at once, and takes no room from other keys.
#[tokio::test(start_paused = true)]
async fn a_full_lane_refuses_and_keeps_no_room() {
    let queue = builder().capacity(3).lane_capacity(2).spawn().unwrap();
    queue.enqueue((1, 1)).await.unwrap();
    queue.enqueue((1, 2)).await.unwrap();
    for _ in 0..4 {
        assert_eq!(
            queue.enqueue((1, 3)).await,
            Err(EnqueueError::LaneFull((1, 3)))
        );
        assert_eq!(
            queue.try_enqueue((1, 3)),
            Err(TryEnqueueError::LaneFull((1, 3)))
        );
    }
    assert_eq!((queue.len(), queue.report().accepted), (2, 2));
    queue.try_enqueue((2, 1)).unwrap();
    assert_eq!(
        queue.try_enqueue((2, 2)),
        Err(TryEnqueueError::Full((2, 2)))
    );
    // The head counts while it is leased or delayed, and no more once it has settled.
    let head = lease(&queue);
    assert_eq!(next(&queue), Some((2, 1)));
    assert!(queue.try_enqueue((1, 3)).is_err());
    head.fail(Redelivery::After(TIME)).unwrap();
    assert!(queue.try_enqueue((1, 3)).is_err());
    tokio::time::sleep(TIME).await;
    quiet().await;
    assert_eq!(next(&queue), Some((1, 1)));
    queue.try_enqueue((1, 3)).unwrap();
    queue.close();
    assert_eq!(rest(&queue), [(1, 2), (1, 3)]);
    assert_eq!(within(queue.drain()).await.completed, 4);
}

/// A lane of one message: its head.
#[tokio::test(start_paused = true)]
async fn a_lane_capacity_of_one() {
    let queue = builder().lane_capacity(1).spawn().unwrap();
    for number in 1..=3 {
        queue.try_enqueue((1, number)).unwrap();
        assert!(queue.try_enqueue((1, 9)).is_err());
        queue.try_enqueue((2, number)).unwrap();
        assert_eq!(rest(&queue), [(1, number), (2, number)]);
    }
}
