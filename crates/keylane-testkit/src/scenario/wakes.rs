//! Futures polled by hand.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A waker that counts how often it is called.
///
/// ```
/// use keylane_testkit::scenario::Wakes;
///
/// let wakes = Wakes::new();
/// let (sender, mut receiver) = tokio::sync::oneshot::channel();
/// assert!(wakes.poll(&mut receiver).is_pending());
/// sender.send(7).unwrap();
/// assert_eq!(wakes.count(), 1);
/// assert!(wakes.poll(&mut receiver).is_ready());
/// ```
#[derive(Debug, Default)]
pub struct Wakes(AtomicUsize);

impl Wakes {
    /// Starts at 0.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns this as a waker.
    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Polls a future once, with this as its waker.
    pub fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(&self.waker()))
    }

    /// Returns how often it was called.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns how often it was called since the last `take`.
    pub fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
