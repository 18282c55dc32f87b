//! What becomes of a request whose response future is dropped after it has started.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use keylane::Turn;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;

/// It is dropped with its response future. The default.
#[derive(Clone, Copy, Debug)]
pub struct Cancel;

/// It goes on in a task of its own, and its key waits for it: see
/// [`finish_dropped`](crate::KeyedLayer::finish_dropped).
#[derive(Clone, Copy, Debug)]
pub struct Finish;

/// What becomes of a request whose response future is dropped: [`Cancel`] or [`Finish`].
///
/// `F` is the inner service's future, `K` the key. It cannot be implemented elsewhere.
pub trait OnDrop<F: Future, K: Eq + Clone>: sealed::Sealed {
    /// The inner future under way, with its turn.
    #[doc(hidden)]
    type Flight: Future<Output = F::Output>;

    #[doc(hidden)]
    fn start(future: F, turn: Turn<K>) -> Self::Flight;
}

mod sealed {
    #[allow(unreachable_pub, reason = "a seal is public and out of reach")]
    pub trait Sealed {}
    impl Sealed for super::Cancel {}
    impl Sealed for super::Finish {}
}

pin_project! {
    /// A future and the turn that it has; the future is dropped first.
    #[doc(hidden)]
    pub struct Tied<F, K>
    where
        K: Eq,
        K: Clone,
    {
        #[pin]
        future: F,
        turn: Turn<K>,
    }
}

impl<F: Future, K: Eq + Clone> Future for Tied<F, K> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}

impl<F: Future, K: Eq + Clone> OnDrop<F, K> for Cancel {
    type Flight = Tied<F, K>;

    #[inline]
    fn start(future: F, turn: Turn<K>) -> Tied<F, K> {
        Tied { future, turn }
    }
}

/// A future that is finished in a task of its own if it is dropped.
#[doc(hidden)]
pub struct Detached<F, K>
where
    F: Future + Send + 'static,
    F::Output: Send,
    K: Eq + Clone + Send + Sync + 'static,
{
    /// `None` once it is done.
    tied: Option<Pin<Box<Tied<F, K>>>>,
    /// Where it is finished. `None`: nowhere, or it has panicked.
    runtime: Option<Handle>,
}

impl<F, K> OnDrop<F, K> for Finish
where
    F: Future + Send + 'static,
    F::Output: Send,
    K: Eq + Clone + Send + Sync + 'static,
{
    type Flight = Detached<F, K>;

    fn start(future: F, turn: Turn<K>) -> Detached<F, K> {
        Detached {
            tied: Some(Box::pin(Tied { future, turn })),
            runtime: Handle::try_current().ok(),
        }
    }
}

impl<F, K> Future for Detached<F, K>
where
    F: Future + Send + 'static,
    F::Output: Send,
    K: Eq + Clone + Send + Sync + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Without it meanwhile, so that one that panics is dropped and not finished.
        let runtime = self.runtime.take();
        let tied = self.tied.as_mut().expect("a response is had once");
        let polled = tied.as_mut().poll(cx);
        if polled.is_ready() {
            self.tied = None;
        }
        self.runtime = runtime;
        polled
    }
}

impl<F, K> Drop for Detached<F, K>
where
    F: Future + Send + 'static,
    F::Output: Send,
    K: Eq + Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if let (Some(tied), Some(runtime)) = (self.tied.take(), &self.runtime)
            && !cfg!(keylane_mutant = "unfinished")
        {
            // Nobody asks for its answer any more. A runtime that ends drops it, and its turn.
            drop(runtime.spawn(async move { drop(tied.await) }));
        }
    }
}

impl<F, K> fmt::Debug for Detached<F, K>
where
    F: Future + Send + 'static,
    F::Output: Send,
    K: Eq + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached").finish_non_exhaustive()
    }
}

impl<F, K: Eq + Clone> fmt::Debug for Tied<F, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tied").finish_non_exhaustive()
    }
}
