//! The user's code panics: no task is stuck, and no message is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use keylane_queue::{Queue, Redelivery};
use keylane_testkit::scenario::{BrokenKey, Fuse, Part, within};

use crate::support::TIME;

/// A message whose drop panics.
struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in the drop of {}", self.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_panics_in_its_drop() {
    let queue = Queue::builder(|bomb: &Bomb| bomb.0 / 10).spawn().unwrap();
    for number in [10, 11, 12, 13, 14, 15] {
        queue.enqueue(Bomb(number)).await.unwrap();
    }
    queue.try_dequeue().unwrap().complete().unwrap();
    queue
        .try_dequeue()
        .unwrap()
        .fail(Redelivery::Never)
        .unwrap();
    drop(queue.try_dequeue().unwrap().give_up().unwrap());
    // The last owner of this one is a late worker, which unwinds.
    let late = queue.try_dequeue().unwrap();
    tokio::time::sleep(TIME).await;
    queue.try_dequeue().unwrap().complete().unwrap();
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _late = late;
        panic!("the worker");
    }));
    assert!(unwound.is_err());
    assert_eq!(queue.try_dequeue().unwrap().0, 14);
    drop(queue.take_parked());
    let report = within(queue.drain()).await;
    assert_eq!(
        (report.completed, report.given_up, report.handed_back),
        (2, 2, 2)
    );
}

fn queue(fuse: &Arc<Fuse>) -> Queue<BrokenKey, u64> {
    let fuse = Arc::clone(fuse);
    Queue::builder(move |number: &u64| BrokenKey::new(number / 10, &fuse))
        .capacity(10)
        .spawn()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_key_that_panics_in_its_drop() {
    let fuse = Fuse::new();
    let queue = queue(&fuse);
    fuse.light(Part::Drop);
    for number in [10, 11, 20] {
        queue.enqueue(number).await.unwrap();
    }
    let mut done = Vec::new();
    while let Ok(lease) = queue.try_dequeue() {
        done.push(*lease);
        lease.complete().unwrap();
    }
    assert_eq!(done, [10, 20, 11]);
    assert_eq!(within(queue.drain()).await.completed, 3);
    // Both lanes and all three messages had a key of their own.
    assert_eq!(fuse.panics(), 5);
}

/// Nothing is accepted, and the room is free again.
#[tokio::test(start_paused = true)]
async fn a_key_that_panics_on_its_way_in() {
    let fuse = Fuse::new();
    let queue = queue(&fuse);
    for (part, number) in [(Part::Clone, 20), (Part::Eq, 11)] {
        queue.enqueue(10).await.unwrap();
        fuse.light(part);
        let sent = catch_unwind(AssertUnwindSafe(|| queue.try_enqueue(number)));
        assert!(sent.is_err());
        assert!(fuse.put_out());
        assert_eq!(queue.len(), 1);
        let lease = queue.try_dequeue().unwrap();
        lease.complete().unwrap();
    }
    for number in 0..10 {
        queue.try_enqueue(number).unwrap();
    }
    assert!(
        queue.try_enqueue(99).is_err(),
        "the capacity is what it was"
    );
    queue.take_parked();
    assert_eq!(within(queue.drain()).await.accepted, 12);
}

/// A lane that is not found again cannot move on. No task waits for it, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn a_key_that_panics_in_the_queue() {
    for way in 0..3 {
        let fuse = Fuse::new();
        let queue = queue(&fuse);
        for number in [10, 11, 12] {
            queue.enqueue(number).await.unwrap();
        }
        let lease = queue.try_dequeue().unwrap();
        let waiting = {
            let queue = queue.clone();
            tokio::spawn(async move { queue.dequeue().await.map(|lease| *lease) })
        };
        tokio::task::yield_now().await;
        fuse.light(Part::Eq);
        let left: &[u64] = match way {
            0 => {
                lease.complete().unwrap();
                &[11, 12]
            }
            1 => {
                lease.fail(Redelivery::After(TIME)).unwrap();
                &[10, 11, 12]
            }
            _ => {
                fuse.put_out();
                lease.fail(Redelivery::After(TIME)).unwrap();
                fuse.light(Part::Eq);
                tokio::time::sleep(2 * TIME).await;
                &[10, 11, 12]
            }
        };
        let got = within(waiting).await.unwrap();
        assert!(got.is_none() || got == Some(10), "{got:?}");
        assert!(queue.is_closed());
        let mut back: Vec<u64> = queue.take_parked().iter().map(|back| **back).collect();
        back.sort_unstable();
        assert_eq!(back, left);
        let report = within(queue.drain()).await;
        assert_eq!((report.accepted, report.unsettled), (3, 0), "{report}");
    }
}
