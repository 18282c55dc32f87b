//! One message of a key at a time, and in order.

use keylane_queue::Redelivery;
use keylane_testkit::scenario::{MS, quiet};

use crate::support::{holding, lease, next, rest};

#[tokio::test(start_paused = true)]
async fn only_keys_that_are_not_leased_are_handed_out() {
    let queue = holding(&[(1, 1), (1, 2), (2, 1)]);
    let one = lease(&queue);
    let two = lease(&queue);
    assert_eq!((*one, *two), ((1, 1), (2, 1)));
    assert!(queue.try_dequeue().is_err(), "(1, 2) waits for (1, 1)");
    two.complete().unwrap();
    assert!(queue.try_dequeue().is_err(), "(1, 2) waits for (1, 1)");
    one.complete().unwrap();
    assert_eq!(rest(&queue), [(1, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lease_puts_its_message_back_at_the_head() {
    let queue = holding(&[(1, 1), (1, 2)]);
    for attempt in 1..=3 {
        let lease = lease(&queue);
        assert_eq!((*lease, lease.attempt()), ((1, 1), attempt));
    }
    assert_eq!(rest(&queue), [(1, 1), (1, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_stays_the_head() {
    let queue = holding(&[(1, 1), (1, 2)]);
    lease(&queue).fail(Redelivery::Now).unwrap();
    let again = lease(&queue);
    assert_eq!((*again, again.attempt()), ((1, 1), 2));
    again.fail(Redelivery::After(5 * MS)).unwrap();
    assert_eq!(queue.leased(), 0);
    assert!(queue.try_dequeue().is_err(), "its key is delayed");
    queue.try_enqueue((1, 3)).unwrap();
    queue.try_enqueue((2, 1)).unwrap();
    assert_eq!(next(&queue), Some((2, 1)), "other keys are not");
    tokio::time::sleep(5 * MS).await;
    quiet().await;
    let again = lease(&queue);
    assert_eq!((*again, again.attempt()), ((1, 1), 3));
    again.fail(Redelivery::Never).unwrap();
    assert_eq!(rest(&queue), [(1, 2), (1, 3)]);
    assert_eq!(queue.report().given_up, 1);
}

/// A delay ends while a task waits for its message.
#[tokio::test(start_paused = true)]
async fn a_waiting_dequeue_gets_a_failed_message_when_its_delay_ends() {
    let queue = holding(&[(1, 1)]);
    // The driver sleeps until a later time than that of the delay.
    quiet().await;
    let failed = lease(&queue);
    quiet().await;
    failed.fail(Redelivery::After(250 * MS)).unwrap();
    let begun = tokio::time::Instant::now();
    let again = queue.dequeue().await.unwrap();
    assert_eq!((*again, again.attempt()), ((1, 1), 2));
    assert_eq!(begun.elapsed(), 250 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_message_given_up_on_can_be_had() {
    let queue = holding(&[(1, 1), (1, 2)]);
    drop(lease(&queue));
    let returned = lease(&queue).give_up().unwrap();
    assert_eq!((*returned.key(), returned.attempts()), (1, 2));
    assert_eq!(returned.into_message().unwrap(), (1, 1));
    assert_eq!(rest(&queue), [(1, 2)]);
}
