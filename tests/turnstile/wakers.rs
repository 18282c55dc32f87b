//! Wakers that panic, come back, or hold more than one would think.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use keylane::{Place, TurnstileClosed};

use crate::rig::{Gates, Wakes, assert_idle, gates, poll, poll_with, turn, wide};

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

/// The one that is woken by a turn that ends, by a permit that comes back, by room, or by the close.
#[test]
fn that_panic_hold_up_nobody() {
    let gates = gates(4, 1, 4);
    let held = gates.try_enter(1).unwrap();
    let mut next = gates.try_enter(1).unwrap();
    let mut called = gates.try_enter(2).unwrap();
    let mut last = gates.try_enter(1).unwrap();
    let mut reserve = gates.reserve();
    let mut late = gates.reserve();
    register(&mut called, &panics());
    register(&mut next, &panics());
    register(&mut last, &panics());
    register(&mut reserve, &panics());
    drop(held);
    assert_eq!((gates.places(), gates.turns()), (4, Some(1)));
    register(&mut late, &panics());
    drop(turn(&mut called));
    drop(turn(&mut next));
    gates.close();
    assert!(poll(&mut late).is_ready());
    drop((last, reserve, late, next, called));
    assert_idle(&gates);
}

#[test]
fn that_panic_do_not_keep_a_close_from_the_others() {
    let gates = gates(8, 1, 4);
    let _held = gates.try_enter(1).unwrap();
    let mut places: Vec<_> = [1, 1, 2, 3].map(|key| gates.try_enter(key).unwrap()).into();
    for place in &mut places {
        register(place, &panics());
    }
    gates.close();
    for place in &mut places {
        assert!(matches!(poll(place), Poll::Ready(Err(TurnstileClosed))));
    }
}

/// While a panic unwinds a waker panics too.
#[test]
fn that_panic_while_another_panic_unwinds() {
    let gates = wide();
    let held = gates.try_enter(1).unwrap();
    let mut next = gates.try_enter(1).unwrap();
    register(&mut next, &panics());
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _held = held;
        panic!("the work");
    }));
    assert!(unwound.is_err());
    drop(turn(&mut next));
    assert_idle(&gates);
}

/// What the waker does, it does in the middle of somebody else's drop.
fn comes_back(then: impl Fn(&Gates, Place<u64>) + Send + Sync + Copy + 'static) {
    for closes in [false, true] {
        let gates = gates(10, 1, 10);
        let held = gates.try_enter(1).unwrap();
        let mut next = gates.try_enter(1).unwrap();
        let mut third = gates.try_enter(1).unwrap();
        let brings = Arc::new(Mutex::new(None));
        let waker = {
            let (gates, brings) = (gates.clone(), Arc::clone(&brings));
            Does::waker(move || then(&gates, brings.lock().unwrap().take().unwrap()))
        };
        register(&mut next, &waker);
        assert!(poll(&mut third).is_pending());
        *brings.lock().unwrap() = Some(next);
        if closes {
            gates.close();
        }
        drop(held);
        assert!(brings.lock().unwrap().is_none(), "it was woken");
        assert!(poll(&mut third).is_ready());
        drop(third);
        assert_idle(&gates);
    }
}

#[test]
fn that_leave() {
    comes_back(|_, place| drop(place));
}

#[test]
fn that_have_the_turn_at_once() {
    comes_back(|_, mut place| drop(poll(&mut place)));
}

#[test]
fn that_close() {
    comes_back(|gates, place| {
        gates.close();
        drop(place);
    });
}

#[test]
fn that_enter() {
    comes_back(|gates, place| {
        let again = gates.try_enter(1);
        drop(gates.try_enter(2));
        drop(place);
        drop(again);
    });
}

/// Counts as a task that holds places: dropped with its last waker, it leaves with all of them.
struct Task {
    _places: Mutex<Vec<Place<u64>>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// The waker of one who has left is not kept, and is not dropped where its drop would wait for itself.
#[test]
fn that_hold_places_of_the_same_lane() {
    let gates = gates(100, 1, 100);
    for key in [0, 1] {
        let held = gates.try_enter(0).unwrap();
        let mut leaves: Vec<_> = (0..6).map(|_| gates.try_enter(key).unwrap()).collect();
        for (at, place) in leaves.iter_mut().enumerate() {
            let other = if at % 2 == 0 { key } else { 7 + at as u64 };
            let holds = vec![gates.try_enter(other).unwrap()];
            register(
                place,
                &Waker::from(Arc::new(Task {
                    _places: Mutex::new(holds),
                })),
            );
        }
        assert_eq!(gates.places(), 13);
        drop(leaves.remove(3));
        assert_eq!(gates.places(), 11);
        drop(leaves);
        assert_eq!(gates.places(), 1);
        drop(held);
        assert_idle(&gates);
    }
}

#[test]
fn of_those_who_have_left_are_dropped_at_once() {
    let gates = gates(100, 1, 100);
    let wakes: Arc<Wakes> = Arc::default();
    let _held = gates.try_enter(0).unwrap();
    let _room: Vec<_> = (0..90).map(|_| gates.try_reserve().unwrap()).collect();
    let mut places: Vec<_> = [0, 0, 0, 0, 1, 2, 3, 4, 5]
        .map(|key| gates.try_enter(key).unwrap())
        .into();
    let mut reserves: Vec<_> = (0..4).map(|_| gates.reserve()).collect();
    for place in &mut places {
        assert!(poll_with(place, &wakes).is_pending());
    }
    for reserve in &mut reserves {
        assert!(poll_with(reserve, &wakes).is_pending());
    }
    assert_eq!(Arc::strong_count(&wakes), 1 + 13);
    drop(reserves.remove(2));
    drop(places.remove(1));
    drop(places.remove(5));
    // And their room has come to two.
    assert_eq!(
        (wakes.count(), Arc::strong_count(&wakes)),
        (2, 1 + 13 - 3 - 2)
    );
}

/// A waker whose clone or drop panics: that is the poll's, and the next poll finds all in order.
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
    let gates = wide();
    let held = gates.try_enter(1).unwrap();
    let mut replaced = gates.try_enter(1).unwrap();
    let mut leaves = gates.try_enter(1).unwrap();
    let wakes = Arc::default();
    {
        // The place keeps the last one of each.
        let waker = brittle();
        register(&mut replaced, &waker);
    }
    register(&mut leaves, &brittle());
    let polled = catch_unwind(AssertUnwindSafe(|| poll_with(&mut replaced, &wakes)));
    assert!(polled.is_err(), "its old waker panicked in the poll");
    drop(leaves);
    drop(held);
    assert_eq!(wakes.count(), 1, "the new one is there all the same");
    drop(turn(&mut replaced));
    assert_idle(&gates);
}

/// From one task to the other: the last one that polled is woken.
#[test]
fn of_another_task() {
    let gates = wide();
    let held = gates.try_enter(1).unwrap();
    let mut place = gates.try_enter(1).unwrap();
    let (first, second) = (Arc::<Wakes>::default(), Arc::<Wakes>::default());
    assert!(poll_with(&mut place, &first).is_pending());
    assert!(poll_with(&mut place, &second).is_pending());
    assert_eq!(Arc::strong_count(&first), 1);
    drop(held);
    assert_eq!((first.count(), second.count()), (0, 1));
}
