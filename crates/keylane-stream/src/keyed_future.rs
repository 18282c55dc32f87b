//! The future of one element.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use keylane_rt::unwind::{Quiet, caught};
use pin_project_lite::pin_project;

/// The payload of a panic, which is resumed in the consumer's poll.
pub(super) type PanicPayload = Box<dyn Any + Send>;

/// A key and its hash.
pub(super) struct HashedKey<K> {
    pub(super) key: Quiet<K>,
    pub(super) hash: u64,
}

pin_project! {
    /// The future of an element, and its key, which has no other future meanwhile.
    pub(super) struct KeyedFuture<K, Fut> {
        hashed: Option<HashedKey<K>>,
        index: u64,
        // `None`: it has finished or was cancelled.
        #[pin]
        future: Option<Fut>,
    }

    impl<K, Fut> PinnedDrop for KeyedFuture<K, Fut> {
        fn drop(this: Pin<&mut Self>) {
            this.cancel();
        }
    }
}

/// What is left of a future that has finished and was dropped.
pub(super) struct FinishedFuture<K, A> {
    pub(super) hashed: HashedKey<K>,
    pub(super) index: u64,
    pub(super) output: Result<A, PanicPayload>,
}

impl<K, Fut> KeyedFuture<K, Fut> {
    pub(super) fn new(hashed: HashedKey<K>, index: u64, future: Fut) -> Self {
        Self {
            hashed: Some(hashed),
            index,
            future: Some(future),
        }
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.future.is_none()
    }

    /// Drops the future. A panic of its `Drop` is logged and goes no further, because callers may
    /// be halfway through their own work.
    pub(super) fn cancel(self: Pin<&mut Self>) {
        let mut future = self.project().future;
        if future.is_some() && caught(|| future.set(None)).is_err() {
            tracing::error!(
                target: "keylane",
                "a future of the stream panicked when it was dropped"
            );
        }
    }
}

impl<K, Fut: Future> Future for KeyedFuture<K, Fut> {
    /// `None`: it was cancelled.
    type Output = Option<FinishedFuture<K, Fut::Output>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.as_mut().project();
        let Some(future) = this.future.as_pin_mut() else {
            return Poll::Ready(None);
        };
        // Unwind safety: a future that panicked is dropped and not polled again.
        let output = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(payload) => Err(payload),
        };
        let index = *this.index;
        let hashed = this.hashed.take();
        // The future is dropped before the next element of its key starts.
        self.cancel();
        Poll::Ready(hashed.map(|hashed| FinishedFuture {
            hashed,
            index,
            output,
        }))
    }
}
