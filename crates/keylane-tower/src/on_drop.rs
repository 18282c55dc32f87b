//! The behaviour of a request whose response future is dropped after the call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use keylane_semaphore::KeyedPermit;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;

/// The request is dropped with its response future. The default.
#[derive(Clone, Copy, Debug)]
pub struct Cancel;

/// The request is finished in a separate task, and keeps its permit until then: see
/// [`finish_dropped`](crate::KeyedLayer::finish_dropped).
#[derive(Clone, Copy, Debug)]
pub struct Finish;

/// The behaviour of a request whose response future is dropped: [`Cancel`] or [`Finish`].
///
/// `F` is the inner service's future, `K` the key. The trait is sealed.
pub trait OnDrop<F: Future, K: Eq + Clone>: sealed::Sealed {
    /// The inner future with its permit.
    #[doc(hidden)]
    type InFlight: Future<Output = F::Output>;

    #[doc(hidden)]
    fn start(future: F, permit: KeyedPermit<K>) -> Self::InFlight;
}

mod sealed {
    #[allow(unreachable_pub, reason = "a seal is public and out of reach")]
    pub trait Sealed {}
    impl Sealed for super::Cancel {}
    impl Sealed for super::Finish {}
}

pin_project! {
    /// A future and its permit. The future is dropped first.
    #[doc(hidden)]
    pub struct WithPermit<F, K>
    where
        K: Eq,
        K: Clone,
    {
        #[pin]
        future: F,
        permit: KeyedPermit<K>,
    }
}

impl<F: Future, K: Eq + Clone> Future for WithPermit<F, K> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}

impl<F: Future, K: Eq + Clone> OnDrop<F, K> for Cancel {
    type InFlight = WithPermit<F, K>;

    #[inline]
    fn start(future: F, permit: KeyedPermit<K>) -> WithPermit<F, K> {
        WithPermit { future, permit }
    }
}

/// A future that is finished in a task of its own if it is dropped.
#[doc(hidden)]
pub struct FinishedWhenDropped<F, K>
where
    F: Future + Send + 'static,
    F::Output: Send,
    K: Eq + Clone + Send + Sync + 'static,
{
    /// `None` once it is done.
    future: Option<Pin<Box<WithPermit<F, K>>>>,
    /// The runtime that finishes it. `None`: the service was called outside a runtime, or the
    /// future has panicked.
    runtime: Option<Handle>,
}

impl<F, K> OnDrop<F, K> for Finish
where
    F: Future + Send + 'static,
    F::Output: Send,
    K: Eq + Clone + Send + Sync + 'static,
{
    type InFlight = FinishedWhenDropped<F, K>;

    fn start(future: F, permit: KeyedPermit<K>) -> FinishedWhenDropped<F, K> {
        FinishedWhenDropped {
            future: Some(Box::pin(WithPermit { future, permit })),
            runtime: Handle::try_current().ok(),
        }
    }
}

impl<F, K> Future for FinishedWhenDropped<F, K>
where
    F: Future + Send + 'static,
    F::Output: Send,
    K: Eq + Clone + Send + Sync + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Taken during the poll, so that a future that panics is dropped and not finished.
        let runtime = self.runtime.take();
        let future = self.future.as_mut();
        let future = future.expect("the future must not be polled after it is ready");
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            self.future = None;
        }
        self.runtime = runtime;
        polled
    }
}

impl<F, K> Drop for FinishedWhenDropped<F, K>
where
    F: Future + Send + 'static,
    F::Output: Send,
    K: Eq + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if let (Some(future), Some(runtime)) = (self.future.take(), &self.runtime) {
            // The output is not used. A runtime that shuts down drops the future and its permit.
            drop(runtime.spawn(async move { drop(future.await) }));
        }
    }
}

impl<F, K> fmt::Debug for FinishedWhenDropped<F, K>
where
    F: Future + Send + 'static,
    F::Output: Send,
    K: Eq + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FinishedWhenDropped")
            .finish_non_exhaustive()
    }
}

impl<F, K: Eq + Clone> fmt::Debug for WithPermit<F, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithPermit").finish_non_exhaustive()
    }
}
