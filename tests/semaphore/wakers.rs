//! Wakers that panic, that call the semaphore, or that own a task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use keylane_semaphore::{Acquire, Closed};
use keylane_testkit::scenario::Wakes;

use crate::support::{Semaphore, acquire, assert_idle, permit, poll, semaphore, wide};

/// Does something once, when it is woken.
struct Does(Mutex<Option<Box<dyn FnOnce() + Send>>>, AtomicUsize);

impl Does {
    fn waker(what: impl FnOnce() + Send + 'static) -> Waker {
        let what: Box<dyn FnOnce() + Send> = Box::new(what);
        Waker::from(Arc::new(Self(Mutex::new(Some(what)), AtomicUsize::new(0))))
    }
}

impl Wake for Does {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        let what = self.0.lock().unwrap().take();
        if let Some(what) = what {
            what();
        }
    }
}

fn register<F: Future + Unpin>(future: &mut F, waker: &Waker) {
    let polled = Pin::new(future).poll(&mut Context::from_waker(waker));
    assert!(polled.is_pending());
}

fn panics() -> Waker {
    Does::waker(|| panic!("the waker"))
}

/// Woken by the permit of its key, by a permit of another key, by capacity, or by the close.
#[test]
fn that_panic_block_no_waiter() {
    let semaphore = semaphore(4, 1, 4);
    let held = acquire(&semaphore, 1);
    let mut next = acquire(&semaphore, 1);
    let mut called = acquire(&semaphore, 2);
    let mut last = acquire(&semaphore, 1);
    let mut reserve = semaphore.reserve();
    let mut late = semaphore.reserve();
    register(&mut called, &panics());
    register(&mut next, &panics());
    register(&mut last, &panics());
    register(&mut reserve, &panics());
    drop(held);
    assert_eq!((semaphore.len(), semaphore.permits_in_use()), (4, Some(1)));
    register(&mut late, &panics());
    drop(permit(&mut called));
    drop(permit(&mut next));
    semaphore.close();
    assert!(poll(&mut late).is_ready());
    drop((last, reserve, late, next, called));
    assert_idle(&semaphore);
}

#[test]
fn that_panic_do_not_keep_a_close_from_the_others() {
    let semaphore = semaphore(8, 1, 4);
    let _held = acquire(&semaphore, 1);
    let mut waiters: Vec<_> = [1, 1, 2, 3].map(|key| acquire(&semaphore, key)).into();
    for waiter in &mut waiters {
        register(waiter, &panics());
    }
    semaphore.close();
    for waiter in &mut waiters {
        assert!(matches!(poll(waiter), Poll::Ready(Err(Closed))));
    }
}

/// A waker panics while another panic unwinds.
#[test]
fn that_panic_while_another_panic_unwinds() {
    let semaphore = wide();
    let held = acquire(&semaphore, 1);
    let mut next = acquire(&semaphore, 1);
    register(&mut next, &panics());
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        panic!("the work");
    }));
    assert!(unwound.is_err());
    drop(permit(&mut next));
    assert_idle(&semaphore);
}

/// A waker that calls the semaphore does so in the middle of the drop that woke it.
fn calls_back(then: impl Fn(&Semaphore, Acquire<u64>) + Send + Sync + Copy + 'static) {
    for closes in [false, true] {
        let semaphore = semaphore(10, 1, 10);
        let held = acquire(&semaphore, 1);
        let mut next = acquire(&semaphore, 1);
        let mut third = acquire(&semaphore, 1);
        let brings = Arc::new(Mutex::new(None));
        let waker = {
            let (semaphore, brings) = (semaphore.clone(), Arc::clone(&brings));
            Does::waker(move || then(&semaphore, brings.lock().unwrap().take().unwrap()))
        };
        register(&mut next, &waker);
        assert!(poll(&mut third).is_pending());
        *brings.lock().unwrap() = Some(next);
        if closes {
            semaphore.close();
        }
        drop(held);
        assert!(brings.lock().unwrap().is_none(), "it was woken");
        assert!(poll(&mut third).is_ready());
        drop(third);
        assert_idle(&semaphore);
    }
}

#[test]
fn that_leave() {
    calls_back(|_, waiter| drop(waiter));
}

#[test]
fn that_take_the_permit_at_once() {
    calls_back(|_, mut waiter| drop(poll(&mut waiter)));
}

#[test]
fn that_close() {
    calls_back(|semaphore, waiter| {
        semaphore.close();
        drop(waiter);
    });
}

#[test]
fn that_acquire() {
    calls_back(|semaphore, waiter| {
        let acquire = |key| semaphore.try_reserve().map(|free| free.acquire(key));
        let again = acquire(1);
        drop(acquire(2));
        drop(semaphore.try_acquire(3));
        drop(waiter);
        drop(again);
    });
}

/// Stands for a task that owns waiters: they leave when its last waker is dropped.
struct Task {
    _places: Mutex<Vec<Acquire<u64>>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// The waker of a waiter that has left is dropped at once, and not under a lock that its drop
/// needs.
#[test]
fn that_own_waiters_of_the_same_lane() {
    let semaphore = semaphore(100, 1, 100);
    for key in [0, 1] {
        let held = acquire(&semaphore, 0);
        let mut leaves: Vec<_> = (0..6).map(|_| acquire(&semaphore, key)).collect();
        for (at, waiter) in leaves.iter_mut().enumerate() {
            let other = if at % 2 == 0 { key } else { 7 + at as u64 };
            let holds = vec![acquire(&semaphore, other)];
            register(
                waiter,
                &Waker::from(Arc::new(Task {
                    _places: Mutex::new(holds),
                })),
            );
        }
        assert_eq!(semaphore.len(), 13);
        drop(leaves.remove(3));
        assert_eq!(semaphore.len(), 11);
        drop(leaves);
        assert_eq!(semaphore.len(), 1);
        drop(held);
        assert_idle(&semaphore);
    }
}

#[test]
fn of_waiters_that_have_left_are_dropped_at_once() {
    let semaphore = semaphore(100, 1, 100);
    let wakes = Wakes::new();
    let _held = acquire(&semaphore, 0);
    let _room: Vec<_> = (0..90).map(|_| semaphore.try_reserve().unwrap()).collect();
    let mut waiters: Vec<_> = [0, 0, 0, 0, 1, 2, 3, 4, 5]
        .map(|key| acquire(&semaphore, key))
        .into();
    let mut reserves: Vec<_> = (0..4).map(|_| semaphore.reserve()).collect();
    for waiter in &mut waiters {
        assert!(wakes.poll(waiter).is_pending());
    }
    for reserve in &mut reserves {
        assert!(wakes.poll(reserve).is_pending());
    }
    assert_eq!(Arc::strong_count(&wakes), 1 + 13);
    drop(reserves.remove(2));
    drop(waiters.remove(1));
    drop(waiters.remove(5));
    // And their capacity was granted to two.
    assert_eq!(
        (wakes.count(), Arc::strong_count(&wakes)),
        (2, 1 + 13 - 3 - 2)
    );
}

/// A waker whose drop panics: the poll panics, and the next poll finds everything in order.
struct Brittle {
    wakes: AtomicUsize,
    drops: AtomicBool,
}

impl Wake for Brittle {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Brittle {
    fn drop(&mut self) {
        assert!(!self.drops.load(Ordering::SeqCst), "the drop of a waker");
    }
}

fn brittle() -> Waker {
    Waker::from(Arc::new(Brittle {
        wakes: AtomicUsize::new(0),
        drops: AtomicBool::new(true),
    }))
}

#[test]
fn that_panic_in_their_drop() {
    let semaphore = wide();
    let held = acquire(&semaphore, 1);
    let mut replaced = acquire(&semaphore, 1);
    let mut leaves = acquire(&semaphore, 1);
    let wakes = Wakes::new();
    {
        // The waiter keeps the last waker only.
        let waker = brittle();
        register(&mut replaced, &waker);
    }
    register(&mut leaves, &brittle());
    let polled = catch_unwind(AssertUnwindSafe(|| wakes.poll(&mut replaced)));
    assert!(polled.is_err(), "its old waker panicked in the poll");
    drop(leaves);
    drop(held);
    assert_eq!(wakes.count(), 1, "the new one is there all the same");
    drop(permit(&mut replaced));
    assert_idle(&semaphore);
}

/// A waiter moves from one task to another: the task that polled last is woken.
#[test]
fn of_another_task() {
    let semaphore = wide();
    let held = acquire(&semaphore, 1);
    let mut waiter = acquire(&semaphore, 1);
    let (first, second) = (Wakes::new(), Wakes::new());
    assert!(first.poll(&mut waiter).is_pending());
    assert!(second.poll(&mut waiter).is_pending());
    assert_eq!(Arc::strong_count(&first), 1);
    drop(held);
    assert_eq!((first.count(), second.count()), (0, 1));
}
