//! What the tests of the turnstile share. They poll by hand: who is polled, and when, is the test's.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use keylane::{Place, Turn, Turnstile};

pub(crate) type Gates = Turnstile<u64>;

/// So many places, turns, and places of one key.
pub(crate) fn gates(capacity: usize, concurrency: usize, lane_capacity: usize) -> Gates {
    let builder = Turnstile::builder().capacity(capacity);
    let builder = builder.concurrency(concurrency);
    builder.lane_capacity(lane_capacity).build().unwrap()
}

/// Room for all that a test does.
pub(crate) fn wide() -> Gates {
    gates(100_000, 1_000, 100_000)
}

/// Polls once.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls once, and remembers who is to be woken.
pub(crate) fn poll_with<F: Future + Unpin>(future: &mut F, wakes: &Arc<Wakes>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(wakes));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// The turn, which has come.
pub(crate) fn turn(place: &mut Place<u64>) -> Turn<u64> {
    match poll(place) {
        Poll::Ready(turn) => turn.unwrap(),
        Poll::Pending => panic!("its turn has not come"),
    }
}

/// Counts how often it is woken.
#[derive(Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Nobody is there, and nothing is left of those who were.
#[track_caller]
pub(crate) fn assert_idle<K: Clone + Eq + std::hash::Hash>(gates: &Turnstile<K>) {
    assert_eq!((gates.places(), gates.lanes()), (0, 0));
    assert_eq!(gates.turns().unwrap_or_default(), 0);
}
