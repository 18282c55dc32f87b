//! Keys come out in the order in which they became ready.

use keylane::Again;

use crate::rig::{holding, jobs, lease, next, quiet, rest};

#[tokio::test(start_paused = true)]
async fn keys_take_turns() {
    let queue = holding(&[(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)]);
    let expected = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (1, 3)];
    assert_eq!(rest(&queue), expected);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_comes_back_stands_behind_the_others() {
    let queue = holding(&[(1, 1), (2, 1), (3, 1)]);
    drop(lease(&queue));
    lease(&queue).fail(Again::Now).unwrap();
    assert_eq!(rest(&queue), [(3, 1), (1, 1), (2, 1)]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_longest_is_served_first() {
    let queue = jobs();
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let queue = queue.clone();
        waiting.push(tokio::spawn(async move { *queue.dequeue().await.unwrap() }));
        quiet().await;
    }
    // Each has ended before the next message comes, so its lease is dropped; the key is its number.
    for key in 0..4 {
        queue.try_enqueue((key, 1)).unwrap();
    }
    for (key, waiting) in waiting.into_iter().enumerate() {
        assert_eq!(waiting.await.unwrap(), (key as u64, 1));
    }
}

/// A key that one worker never lets go delays no other.
#[tokio::test(start_paused = true)]
async fn one_key_for_ever_leased_holds_up_itself_alone() {
    let queue = holding(&[(1, 1), (1, 2), (2, 1)]);
    let forever = lease(&queue);
    for round in 2..100 {
        tokio::time::sleep(crate::rig::TIME / 2).await;
        forever.extend(crate::rig::TIME).unwrap();
        queue.try_enqueue((2, round)).unwrap();
        assert_eq!(next(&queue), Some((2, round - 1)));
        assert!(queue.leased() == 1);
    }
    forever.complete().unwrap();
    assert_eq!(rest(&queue), [(2, 99), (1, 2)]);
}
