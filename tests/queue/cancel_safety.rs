//! Every future of the queue, dropped at every poll.

use keylane_testkit::scenario::{drop_after_polls, quiet, within};

use crate::support::{builder, holding, jobs, lease, rest};

/// A message that a dropped `dequeue` was about to get goes to the next, and no lease is left
/// behind.
#[tokio::test(start_paused = true)]
async fn dequeue_dropped_at_each_poll() {
    // A message is ready at once; one is enqueued later; a key is given back later.
    for obstacle in 0..3 {
        for polls in 0..4 {
            for cleared in 0..4 {
                let queue = match obstacle {
                    0 => holding(&[(1, 1), (1, 2)]),
                    1 => jobs(),
                    _ => holding(&[(1, 1), (1, 2)]),
                };
                let mut held = (obstacle == 2).then(|| lease(&queue));
                let answer = drop_after_polls(polls, queue.dequeue(), async |poll| {
                    if poll == cleared {
                        match obstacle {
                            0 => {}
                            1 => {
                                queue.try_enqueue((1, 1)).unwrap();
                                queue.try_enqueue((1, 2)).unwrap();
                            }
                            _ => drop(held.take()),
                        }
                    }
                })
                .await;
                drop((answer, held.take()));
                assert_eq!(queue.leased(), 0);
                let size = queue.len();
                let left = rest(&queue);
                assert_eq!(left.len(), size, "nothing is lost");
                assert_eq!(left, [(1, 1), (1, 2)][..size]);
            }
        }
    }
}

/// The wake-up of a `dequeue` that is dropped before its next poll goes to the other one that
/// waits.
#[tokio::test(start_paused = true)]
async fn a_wake_up_passes_on() {
    let queue = jobs();
    let mut first = Box::pin(queue.dequeue());
    assert!(
        drop_after_polls(1, &mut first, async |_| {})
            .await
            .is_none()
    );
    let second = {
        let queue = queue.clone();
        tokio::spawn(async move { *queue.dequeue().await.unwrap() })
    };
    quiet().await;
    queue.try_enqueue((1, 1)).unwrap();
    drop(first);
    assert_eq!(within(second).await.unwrap(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn enqueue_dropped_at_each_poll() {
    for room in [0, 1] {
        for polls in 0..4 {
            for cleared in 0..4 {
                let queue = builder().capacity(2).spawn().unwrap();
                for number in room..2 {
                    queue.try_enqueue((1, number)).unwrap();
                }
                let answer = drop_after_polls(polls, queue.enqueue((2, 9)), async |poll| {
                    if poll == cleared {
                        lease(&queue).complete().unwrap();
                    }
                })
                .await;
                let accepted = matches!(answer, Some(Ok(())));
                let left = rest(&queue);
                assert_eq!(left.contains(&(2, 9)), accepted);
                assert!(queue.is_empty());
                // All the room is free again.
                queue.try_enqueue((3, 1)).unwrap();
                queue.try_enqueue((3, 2)).unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn drain_dropped_at_each_poll() {
    for polls in 0..4 {
        let queue = holding(&[(1, 1), (1, 2)]);
        let held = lease(&queue);
        let answer = drop_after_polls(polls, queue.drain(), async |_| quiet().await).await;
        assert_eq!((answer, queue.is_closed()), (None, polls > 0));
        held.complete().unwrap();
        assert_eq!(rest(&queue), [(1, 2)]);
        let report = within(queue.drain()).await;
        assert_eq!((report.accepted, report.completed), (2, 2));
    }
}

/// A future that has a permit, and must let other tasks run before it may be ready.
#[tokio::test(start_paused = true)]
async fn a_future_dropped_at_the_end_of_its_budget() {
    let queue = builder().capacity(2).spawn().unwrap();
    queue.try_enqueue((1, 1)).unwrap();
    use_up_budget().await;
    assert!(
        drop_after_polls(1, queue.enqueue((1, 2)), async |_| {})
            .await
            .is_none()
    );
    assert!(
        drop_after_polls(1, queue.dequeue(), async |_| {})
            .await
            .is_none()
    );
    tokio::task::yield_now().await;
    assert_eq!(queue.len(), 1);
    assert_eq!(rest(&queue), [(1, 1)]);
    queue.try_enqueue((1, 3)).unwrap();
    queue.try_enqueue((1, 4)).unwrap();
    assert_eq!(rest(&queue), [(1, 3), (1, 4)]);
}

/// Until this task would have to let other tasks run.
async fn use_up_budget() {
    while tokio::task::coop::has_budget_remaining() {
        tokio::task::consume_budget().await;
    }
}
