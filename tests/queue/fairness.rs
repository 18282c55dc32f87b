//! Keys come out in the order in which they became ready.

use keylane_queue::Redelivery;
use keylane_testkit::scenario::quiet;

use crate::support::{holding, jobs, lease, next, rest};

#[tokio::test(start_paused = true)]
async fn keys_take_turns() {
    let queue = holding(&[(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)]);
    let expected = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (1, 3)];
    assert_eq!(rest(&queue), expected);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_given_back_goes_behind_the_others() {
    let queue = holding(&[(1, 1), (2, 1), (3, 1)]);
    drop(lease(&queue));
    lease(&queue).fail(Redelivery::Now).unwrap();
    assert_eq!(rest(&queue), [(3, 1), (1, 1), (2, 1)]);
}

#[tokio::test(start_paused = true)]
async fn the_task_that_waits_longest_is_served_first() {
    let queue = jobs();
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let queue = queue.clone();
        waiting.push(tokio::spawn(async move { *queue.dequeue().await.unwrap() }));
        quiet().await;
    }
    // The task drops its lease before the next message comes. The key is the number of the task.
    for key in 0..4 {
        queue.try_enqueue((key, 1)).unwrap();
    }
    for (key, waiting) in waiting.into_iter().enumerate() {
        assert_eq!(waiting.await.unwrap(), (key as u64, 1));
    }
}

/// One worker extends its lease again and again.
#[tokio::test(start_paused = true)]
async fn a_key_that_stays_leased_holds_up_no_other() {
    let queue = holding(&[(1, 1), (1, 2), (2, 1)]);
    let forever = lease(&queue);
    for round in 2..100 {
        tokio::time::sleep(crate::support::TIME / 2).await;
        forever.extend(crate::support::TIME).unwrap();
        queue.try_enqueue((2, round)).unwrap();
        assert_eq!(next(&queue), Some((2, round - 1)));
        assert!(queue.leased() == 1);
    }
    forever.complete().unwrap();
    assert_eq!(rest(&queue), [(2, 99), (1, 2)]);
}
