//! The limit, and who waits at it.

use keylane::{Again, EnqueueError, TryEnqueueError};

use crate::rig::{Jobs, builder, lease, next, quiet, within};

fn full() -> Jobs {
    let queue = builder().limit(2).spawn().unwrap();
    queue.try_enqueue((1, 1)).unwrap();
    queue.try_enqueue((1, 2)).unwrap();
    queue
}

#[tokio::test(start_paused = true)]
async fn senders_wait_at_the_limit_and_come_in_in_order() {
    let queue = full();
    assert_eq!(queue.limit(), 2);
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
        assert!(queue.size() <= 2);
    }
    for sender in senders {
        sender.await.unwrap().unwrap();
    }
    assert!(queue.is_empty());
}

/// Each way to settle gives room; each way to come back does not.
#[tokio::test(start_paused = true)]
async fn room_comes_back_with_the_settlement() {
    let queue = full();
    drop(lease(&queue));
    lease(&queue).fail(Again::Now).unwrap();
    assert!(queue.try_enqueue((2, 1)).is_err());
    lease(&queue).complete().unwrap();
    queue.try_enqueue((2, 1)).unwrap();
    assert!(queue.try_enqueue((2, 2)).is_err());
    lease(&queue).fail(Again::Never).unwrap();
    queue.try_enqueue((2, 2)).unwrap();
    assert!(queue.try_enqueue((2, 3)).is_err());
    assert_eq!(queue.take_parked().len(), 2);
    queue.try_enqueue((2, 3)).unwrap();
    queue.try_enqueue((2, 4)).unwrap();
    assert!(queue.try_enqueue((2, 5)).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_waits_is_refused_when_the_queue_closes() {
    let queue = full();
    let sender = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.enqueue((7, 7)).await })
    };
    quiet().await;
    queue.close();
    assert!(queue.is_closed());
    assert_eq!(within(sender).await.unwrap(), Err(EnqueueError((7, 7))));
    assert_eq!(queue.enqueue((7, 8)).await, Err(EnqueueError((7, 8))));
    assert_eq!(
        queue.try_enqueue((7, 9)),
        Err(TryEnqueueError::Closed((7, 9)))
    );
    assert_eq!(queue.report().accepted, 2);
}
