//! Close, drain, and taking back.

use keylane_queue::{Redelivery, TryDequeueError};
use keylane_testkit::scenario::{MS, quiet, within};

use crate::support::{TIME, holding, jobs, lease, next, rest};

#[tokio::test(start_paused = true)]
async fn what_is_parked_can_be_leased_after_close() {
    let queue = holding(&[(1, 1), (1, 2), (2, 1)]);
    queue.close();
    assert_eq!(rest(&queue), [(1, 1), (2, 1), (1, 2)]);
    assert_eq!(queue.try_dequeue().err(), Some(TryDequeueError::Closed));
    assert!(within(queue.dequeue()).await.is_none());
}

/// A task that waits is not refused while a message may still come back.
#[tokio::test(start_paused = true)]
async fn dequeue_waits_for_what_may_come_back() {
    for way in 0..4 {
        let queue = holding(&[(1, 1)]);
        let held = lease(&queue);
        queue.close();
        assert_eq!(queue.try_dequeue().err(), Some(TryDequeueError::Empty));
        let waiting = {
            let queue = queue.clone();
            tokio::spawn(async move {
                let lease = queue.dequeue().await?;
                let job = *lease;
                lease.complete().unwrap();
                Some(job)
            })
        };
        quiet().await;
        assert!(!waiting.is_finished());
        match way {
            0 => drop(held),
            1 => held.fail(Redelivery::After(MS)).unwrap(),
            2 => tokio::time::sleep(TIME).await,
            _ => held.complete().unwrap(),
        }
        let got = within(waiting).await.unwrap();
        assert_eq!(got, (way < 3).then_some((1, 1)));
        assert!(within(queue.dequeue()).await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn drain_reports_what_became_of_every_message() {
    let queue = holding(&[(1, 1), (1, 2), (2, 1), (3, 1)]);
    next(&queue);
    lease(&queue).fail(Redelivery::Never).unwrap();
    let draining = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.drain().await })
    };
    quiet().await;
    assert!(!draining.is_finished() && queue.is_closed());
    let held = lease(&queue);
    let back = queue.take_parked();
    let back: Vec<_> = back
        .into_iter()
        .map(|back| back.into_message().unwrap())
        .collect();
    assert_eq!((*held, back), ((3, 1), vec![(1, 2)]));
    quiet().await;
    assert!(!draining.is_finished(), "one is leased");
    held.complete().unwrap();
    let report = within(draining).await.unwrap();
    assert_eq!(
        report.to_string(),
        "4 accepted = 2 completed + 1 given up + 1 handed back"
    );
    assert_eq!((report.unsettled, queue.report()), (0, report));
}

/// A queue that is empty has nothing to wait for.
#[tokio::test(start_paused = true)]
async fn an_empty_queue_ends_at_once() {
    let queue = jobs();
    let waiting = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.dequeue().await.is_none() })
    };
    quiet().await;
    assert_eq!(within(queue.drain()).await.accepted, 0);
    assert!(within(waiting).await.unwrap());
    assert_eq!(queue.drain().await, queue.drain().await);
}

/// Messages that are ready, delayed, or behind a leased head: all of them, in order per key.
#[tokio::test(start_paused = true)]
async fn take_parked_takes_everything_that_is_not_leased() {
    let queue = holding(&[(1, 1), (2, 1), (3, 1)]);
    for number in 2..=3 {
        for key in 1..=3 {
            queue.try_enqueue((key, number)).unwrap();
        }
    }
    let held = lease(&queue);
    lease(&queue).fail(Redelivery::After(TIME)).unwrap();
    let back = queue.take_parked();
    for key in 1..=3 {
        let numbers: Vec<_> = back
            .iter()
            .filter(|back| *back.key() == key)
            .map(|back| (back.1, back.attempts()))
            .collect();
        let expected = match key {
            1 => vec![(2, 0), (3, 0)],
            2 => vec![(1, 1), (2, 0), (3, 0)],
            _ => vec![(1, 0), (2, 0), (3, 0)],
        };
        assert_eq!(numbers, expected, "key {key}");
    }
    for back in back {
        assert!(back.into_message().is_ok(), "no worker has it");
    }
    assert_eq!((queue.len(), queue.leased()), (1, 1));
    // The leased message comes back, and the queue goes on. The delay of (2, 1) ends without
    // effect.
    queue.try_enqueue((2, 9)).unwrap();
    let two = lease(&queue);
    drop(held);
    assert_eq!(rest(&queue), [(1, 1)]);
    tokio::time::sleep(TIME - MS).await;
    two.extend(TIME).unwrap();
    tokio::time::sleep(2 * MS).await;
    assert!(queue.try_dequeue().is_err());
    two.complete().unwrap();
    assert!(queue.is_empty());
}

/// A message that a late worker still reads cannot be moved out, and can be read.
#[tokio::test(start_paused = true)]
async fn what_a_late_worker_reads_stays_readable() {
    let queue = holding(&[(1, 1)]);
    let late = lease(&queue);
    tokio::time::sleep(TIME + MS).await;
    let back = queue.take_parked().pop().unwrap();
    let back = back.into_message().unwrap_err();
    assert_eq!((*back, *late, back.attempts()), ((1, 1), (1, 1), 1));
    drop(late);
    assert_eq!(back.into_message().unwrap(), (1, 1));
    assert!(queue.is_empty());
}
