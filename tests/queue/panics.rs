//! The user's code panics: no task is stuck, and no message is lost.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use keylane::Queue;
use keylane::queue::Redelivery;
use keylane_testkit::scenario::within;

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

/// A key that panics where it is told to.
#[derive(Clone)]
struct Key {
    number: u64,
    switches: Arc<Switches>,
}

#[derive(Default)]
struct Switches {
    eq: AtomicBool,
    clone: AtomicBool,
    drop: AtomicBool,
    panics: AtomicUsize,
}

impl Switches {
    fn at(&self, switch: &AtomicBool) {
        if switch.load(Ordering::SeqCst) {
            self.panics.fetch_add(1, Ordering::SeqCst);
            panic!("the key");
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.switches.at(&self.switches.eq);
        self.number == other.number
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

struct Cloned(Key);

impl Clone for Cloned {
    fn clone(&self) -> Self {
        self.0.switches.at(&self.0.switches.clone);
        Self(self.0.clone())
    }
}

impl PartialEq for Cloned {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Cloned {}

impl Hash for Cloned {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for Cloned {
    fn drop(&mut self) {
        self.0.switches.at(&self.0.switches.drop);
    }
}

fn queue(switches: &Arc<Switches>) -> Queue<Cloned, u64> {
    let switches = Arc::clone(switches);
    Queue::builder(move |number: &u64| {
        Cloned(Key {
            number: number / 10,
            switches: Arc::clone(&switches),
        })
    })
    .capacity(10)
    .spawn()
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_key_that_panics_in_its_drop() {
    let switches = Arc::new(Switches::default());
    let queue = queue(&switches);
    switches.drop.store(true, Ordering::SeqCst);
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
    assert_eq!(switches.panics.load(Ordering::SeqCst), 5);
}

/// Nothing is accepted, and the room is free again.
#[tokio::test(start_paused = true)]
async fn a_key_that_panics_on_its_way_in() {
    let switches = Arc::new(Switches::default());
    let queue = queue(&switches);
    for switch in [&switches.clone, &switches.eq] {
        queue.enqueue(10).await.unwrap();
        switch.store(true, Ordering::SeqCst);
        let number = if std::ptr::eq(switch, &switches.eq) {
            11
        } else {
            20
        };
        let sent = catch_unwind(AssertUnwindSafe(|| queue.try_enqueue(number)));
        assert!(sent.is_err());
        switch.store(false, Ordering::SeqCst);
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
        let switches = Arc::new(Switches::default());
        let queue = queue(&switches);
        for number in [10, 11, 12] {
            queue.enqueue(number).await.unwrap();
        }
        let lease = queue.try_dequeue().unwrap();
        let waiting = {
            let queue = queue.clone();
            tokio::spawn(async move { queue.dequeue().await.map(|lease| *lease) })
        };
        tokio::task::yield_now().await;
        switches.eq.store(true, Ordering::SeqCst);
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
                switches.eq.store(false, Ordering::SeqCst);
                lease.fail(Redelivery::After(TIME)).unwrap();
                switches.eq.store(true, Ordering::SeqCst);
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
