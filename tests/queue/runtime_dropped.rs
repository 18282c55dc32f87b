//! The runtime of the queue goes, and somebody on another one still has it.

use keylane::EnqueueError;

use crate::rig::{builder, lease, rest};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

#[test]
fn nobody_waits_and_nothing_is_lost() {
    let first = runtime();
    let queue = first.block_on(async {
        let queue = builder().spawn().unwrap();
        for job in [(1, 1), (1, 2), (2, 1)] {
            queue.enqueue(job).await.unwrap();
        }
        queue
    });
    let held = lease(&queue);
    drop(first);

    runtime().block_on(async {
        assert_eq!(queue.enqueue((3, 1)).await, Err(EnqueueError((3, 1))));
        assert_eq!(*queue.dequeue().await.unwrap(), (2, 1));
        let report = queue.drain().await;
        assert_eq!((report.accepted, report.unsettled), (3, 3));
        assert_eq!(
            report.to_string(),
            "3 accepted = 0 completed + 0 given up + 0 handed back + 3 unsettled"
        );
        // What was dropped is ready again; (1, 2) waits for a lease that nobody can wait for.
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
