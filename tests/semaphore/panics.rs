//! The user's code panics: no waiter is stuck, and the capacity is free again.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;

use keylane_semaphore::{Closed, KeyedSemaphore};
use keylane_testkit::scenario::{BrokenKey, Fuse, Part};

use crate::support::{acquire, assert_idle, permit, poll, wide};

struct Fixture {
    semaphore: KeyedSemaphore<BrokenKey>,
    fuse: Arc<Fuse>,
}

impl Fixture {
    fn new(concurrency: usize) -> Self {
        let builder = KeyedSemaphore::builder()
            .capacity(10)
            .concurrency(concurrency);
        Self {
            semaphore: builder.lane_capacity(10).build().unwrap(),
            fuse: Fuse::new(),
        }
    }

    fn key(&self, number: u64) -> BrokenKey {
        BrokenKey::new(number, &self.fuse)
    }
}

#[test]
fn of_a_new_waiter() {
    for (part, tries) in [
        (Part::Hash, false),
        (Part::Eq, false),
        (Part::Clone, false),
        (Part::Hash, true),
        (Part::Eq, true),
    ] {
        let fixture = Fixture::new(1);
        let mut held = acquire(&fixture.semaphore, fixture.key(1));
        let mut parked = acquire(&fixture.semaphore, fixture.key(1));
        fixture.fuse.light(part);
        let key = fixture.key(if part == Part::Clone { 2 } else { 1 });
        let acquired = catch_unwind(AssertUnwindSafe(|| {
            if tries {
                drop(fixture.semaphore.try_acquire(key));
            } else {
                drop(acquire(&fixture.semaphore, key));
            }
        }));
        assert!(acquired.is_err());
        fixture.fuse.put_out();
        assert_eq!(fixture.semaphore.len(), 2, "the capacity is free");
        assert!(!fixture.semaphore.is_closed());
        assert!(matches!(poll(&mut held), Poll::Ready(Ok(_))));
        assert!(matches!(poll(&mut parked), Poll::Ready(Ok(_))));
        drop(acquire(&fixture.semaphore, fixture.key(2)));
        assert_idle(&fixture.semaphore);
    }
}

/// A key that panics in its drop has no effect, whether a lane, a waiter or a permit drops it.
#[test]
fn in_its_drop() {
    let fixture = Fixture::new(1);
    fixture.fuse.light(Part::Drop);
    for number in [1, 1, 2, 1] {
        drop(acquire(&fixture.semaphore, fixture.key(number)));
    }
    let held = acquire(&fixture.semaphore, fixture.key(1));
    let mut next = acquire(&fixture.semaphore, fixture.key(1));
    drop(held);
    assert!(matches!(poll(&mut next), Poll::Ready(Ok(_))));
    assert!(!fixture.semaphore.is_closed());
    assert_eq!(fixture.fuse.panics(), 4 * 2 + 3);
    assert_idle(&fixture.semaphore);
}

/// While a panic unwinds, a second one would abort the process.
#[test]
fn in_its_drop_while_another_panic_unwinds() {
    let fixture = Fixture::new(1);
    let held = acquire(&fixture.semaphore, fixture.key(1)).try_into_permit();
    let mut next = acquire(&fixture.semaphore, fixture.key(1));
    fixture.fuse.light(Part::Drop);
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        panic!("the work");
    }));
    assert!(unwound.is_err());
    assert!(matches!(poll(&mut next), Poll::Ready(Ok(_))));
    assert_idle(&fixture.semaphore);
}

/// A lane that cannot be found cannot be moved on: the semaphore closes, and no waiter is stuck.
#[test]
fn while_others_wait_for_its_lane() {
    for leaves in [0, 1, 2] {
        let fixture = Fixture::new(1);
        let mut waiters: Vec<_> = (0..3)
            .map(|_| acquire(&fixture.semaphore, fixture.key(1)))
            .collect();
        let mut other = acquire(&fixture.semaphore, fixture.key(2));
        fixture.fuse.light(Part::Eq);
        drop(waiters.remove(leaves));
        fixture.fuse.put_out();
        assert!(fixture.semaphore.is_closed());
        // The permit that was dropped went to the other key.
        let had = matches!(poll(&mut other), Poll::Ready(Ok(_)));
        assert_eq!(had, leaves == 0);
        let had_turn = usize::from(leaves > 0);
        for waiter in &mut waiters[had_turn..] {
            assert!(matches!(poll(waiter), Poll::Ready(Err(Closed))));
        }
        assert!(poll(&mut waiters[0]).is_ready());
        drop((waiters, other));
        assert_eq!(
            (fixture.semaphore.len(), fixture.semaphore.permits_in_use()),
            (0, Some(0))
        );
    }
}

/// A key that is not equal to itself.
#[derive(Clone)]
struct Strange;

impl PartialEq for Strange {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for Strange {}

impl Hash for Strange {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn a_key_that_does_not_find_itself() {
    let semaphore = KeyedSemaphore::builder().build().unwrap();
    let waiter = acquire(&semaphore, Strange);
    let mut other = acquire(&semaphore, Strange);
    drop(waiter);
    assert!(semaphore.is_closed());
    assert!(matches!(poll(&mut other), Poll::Ready(Ok(_))));
    assert_eq!((semaphore.len(), semaphore.permits_in_use()), (0, Some(0)));
}

/// A key that is equal to itself for a while.
#[derive(Clone)]
struct Fickle(Arc<AtomicU8>);

impl PartialEq for Fickle {
    fn eq(&self, _: &Self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

impl Eq for Fickle {}

impl Hash for Fickle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        7.hash(state);
    }
}

/// A parked waiter leaves and does not find its lane: the waiter behind it must not wait for it.
#[test]
fn a_key_that_does_not_find_itself_any_more() {
    let semaphore = KeyedSemaphore::builder().build().unwrap();
    let fickle = Fickle(Arc::default());
    let head = acquire(&semaphore, fickle.clone());
    let leaves = acquire(&semaphore, fickle.clone());
    let mut behind = acquire(&semaphore, fickle.clone());
    fickle.0.store(1, Ordering::SeqCst);
    drop(leaves);
    fickle.0.store(0, Ordering::SeqCst);
    drop(head);
    assert!(poll(&mut behind).is_ready());
    drop(behind);
    assert_idle(&semaphore);
}

#[test]
fn in_work_that_has_its_permit() {
    let semaphore = wide();
    let held = acquire(&semaphore, 1).try_into_permit().unwrap();
    let mut next = acquire(&semaphore, 1);
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        panic!("the work");
    }));
    assert!(unwound.is_err());
    drop(permit(&mut next));
    assert_idle(&semaphore);
}

#[tokio::test]
async fn in_a_task_that_has_its_permit() {
    let semaphore = wide();
    let held = semaphore.acquire(1).await.unwrap();
    let waits = acquire(&semaphore, 1);
    let task = tokio::spawn(async move {
        let _held = held;
        panic!("the task");
    });
    drop(waits.await.unwrap());
    assert!(task.await.unwrap_err().is_panic());
    assert_idle(&semaphore);
}
