//! One element in flight.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::engine::{Quiet, caught};

/// What a panic threw. It goes on to the consumer.
pub(super) type Thrown = Box<dyn Any + Send>;

/// A key, and its hash.
pub(super) struct Keyed<K> {
    pub(super) key: Quiet<K>,
    pub(super) hash: u64,
}

pin_project! {
    /// The future of an element, and the key that waits for its end.
    pub(super) struct Flight<K, Fut> {
        at: Option<Keyed<K>>,
        index: u64,
        // `None`: it has finished, or was given up.
        #[pin]
        future: Option<Fut>,
    }

    impl<K, Fut> PinnedDrop for Flight<K, Fut> {
        fn drop(this: Pin<&mut Self>) {
            this.give_up();
        }
    }
}

/// A future that has finished, and is gone.
pub(super) struct Landed<K, A> {
    pub(super) at: Keyed<K>,
    pub(super) index: u64,
    pub(super) answer: Result<A, Thrown>,
}

impl<K, Fut> Flight<K, Fut> {
    pub(super) fn new(at: Keyed<K>, index: u64, future: Fut) -> Self {
        Self {
            at: Some(at),
            index,
            future: Some(future),
        }
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.future.is_none()
    }

    /// Drops the future. A panic in there changes nothing: others may be in the middle of something.
    pub(super) fn give_up(self: Pin<&mut Self>) {
        let mut future = self.project().future;
        if future.is_some() && caught(|| future.set(None)).is_err() {
            tracing::error!(target: "keylane", "a future of a stream panicked in its drop");
        }
    }
}

impl<K, Fut: Future> Future for Flight<K, Fut> {
    /// `None`: it was given up.
    type Output = Option<Landed<K, Fut::Output>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.as_mut().project();
        let Some(future) = this.future.as_pin_mut() else {
            return Poll::Ready(None);
        };
        // Unwind safety: a future that panicked is dropped and not seen again.
        let answer = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(answer)) => Ok(answer),
            Err(thrown) => Err(thrown),
        };
        let index = *this.index;
        let at = this.at.take();
        // Before its key moves on.
        self.give_up();
        Poll::Ready(at.map(|at| Landed { at, index, answer }))
    }
}
