//! The runtime of the queue is dropped while another one still uses the queue.

use keylane_queue::EnqueueError;
use keylane_testkit::scenario::paused;

use crate::support::{builder, lease, rest};

#[test]
fn no_task_waits_and_nothing_is_lost() {
    let first = paused();
    let queue = first.block_on(async {
        let queue = builder().spawn().unwrap();
        for job in [(1, 1), (1, 2), (2, 1)] {
            queue.enqueue(job).await.unwrap();
        }
        queue
    });
    let held = lease(&queue);
    drop(first);

    paused().block_on(async {
        assert_eq!(
            queue.enqueue((3, 1)).await,
            Err(EnqueueError::Closed((3, 1)))
        );
        assert_eq!(*queue.dequeue().await.unwrap(), (2, 1));
        let report = queue.drain().await;
        assert_eq!((report.accepted, report.unsettled), (3, 3));
        assert_eq!(
            report.to_string(),
            "3 accepted = 0 completed + 0 given up + 0 handed back + 3 unsettled"
        );
        // The dropped one is ready again; (1, 2) is behind a leased head, and no task can wait for
        // it.
        assert_eq!(*queue.dequeue().await.unwrap(), (2, 1));
        held.complete().unwrap();
        let last = queue.dequeue().await.unwrap();
        assert_eq!(*last, (2, 1));
        last.complete().unwrap();
        assert_eq!(rest(&queue), [(1, 2)]);
        assert!(queue.dequeue().await.is_none());
        assert_eq!(queue.report().completed, 3);
    });
}
