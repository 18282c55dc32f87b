//! Work without outputs, as a future.

use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::FusedFuture;
use futures::stream::IntoStream;
use futures::{Stream, TryStream, TryStreamExt};
use pin_project_lite::pin_project;

use super::core::Core;
use super::limits::settings;
use super::on_error::OnError;
use super::outputs::{Discard, FirstError};

pin_project! {
    /// The future of [`for_each_keyed`](crate::KeyedStreamExt::for_each_keyed): ready when all work
    /// is done.
    #[must_use = "futures do nothing unless polled"]
    pub struct ForEachKeyed<S, K, G, F, Fut>
    where
        S: Stream,
    {
        #[pin]
        core: Core<S, K, S::Item, G, F, Fut, Discard>,
    }
}

impl<S: Stream, K, G, F, Fut> ForEachKeyed<S, K, G, F, Fut> {
    settings!();
}

impl<S, K, G, F, Fut> ForEachKeyed<S, K, G, F, Fut>
where
    S: Stream,
    K: Hash + Eq + Clone,
    G: FnMut(&S::Item) -> K,
    F: FnMut(S::Item) -> Fut,
    Fut: Future<Output = ()>,
{
    #[track_caller]
    pub(super) fn new(source: S, concurrency: usize, key: G, f: F) -> Self {
        let core = Core::new(source, concurrency, key, f, Discard);
        Self { core }
    }
}

impl<S, K, G, F, Fut> Future for ForEachKeyed<S, K, G, F, Fut>
where
    S: Stream,
    K: Hash + Eq + Clone,
    G: FnMut(&S::Item) -> K,
    F: FnMut(S::Item) -> Fut,
    Fut: Future<Output = ()>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let output = self.project().core.poll_output(cx, Ok, |()| false);
        output.map(|_| ())
    }
}

impl<S, K, G, F, Fut> FusedFuture for ForEachKeyed<S, K, G, F, Fut>
where
    S: Stream,
    K: Hash + Eq + Clone,
    G: FnMut(&S::Item) -> K,
    F: FnMut(S::Item) -> Fut,
    Fut: Future<Output = ()>,
{
    fn is_terminated(&self) -> bool {
        self.core.is_done()
    }
}

impl<S: Stream, K, G, F, Fut> fmt::Debug for ForEachKeyed<S, K, G, F, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt("ForEachKeyed", f)
    }
}

pin_project! {
    /// The future of [`try_for_each_keyed`](crate::KeyedStreamExt::try_for_each_keyed): ready when
    /// all work is done, or with the first error.
    #[must_use = "futures do nothing unless polled"]
    pub struct TryForEachKeyed<S, K, G, F, Fut>
    where
        S: TryStream,
    {
        #[pin]
        core: Core<IntoStream<S>, K, S::Ok, G, F, Fut, FirstError<S::Error>>,
        on_error: OnError,
    }
}

impl<S: TryStream, K, G, F, Fut> TryForEachKeyed<S, K, G, F, Fut> {
    settings!();

    /// Sets what happens after the first error. The default is [`OnError::Stop`].
    ///
    /// With [`OnError::Continue`] all elements run, and then the error that came first is returned.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }
}

impl<S, K, G, F, Fut> TryForEachKeyed<S, K, G, F, Fut>
where
    S: TryStream,
    K: Hash + Eq + Clone,
    G: FnMut(&S::Ok) -> K,
    F: FnMut(S::Ok) -> Fut,
    Fut: Future<Output = Result<(), S::Error>>,
{
    #[track_caller]
    pub(super) fn new(source: S, concurrency: usize, key: G, f: F) -> Self {
        Self {
            core: Core::new(source.into_stream(), concurrency, key, f, FirstError::new()),
            on_error: OnError::default(),
        }
    }
}

impl<S, K, G, F, Fut> Future for TryForEachKeyed<S, K, G, F, Fut>
where
    S: TryStream,
    K: Hash + Eq + Clone,
    G: FnMut(&S::Ok) -> K,
    F: FnMut(S::Ok) -> Fut,
    Fut: Future<Output = Result<(), S::Error>>,
{
    type Output = Result<(), S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let stops = *this.on_error == OnError::Stop;
        let is_last = |output: &Fut::Output| stops && output.is_err();
        let core = this.core.as_mut();
        ready!(core.poll_output(cx, |item| item.map_err(Err), is_last));
        match this.core.outputs_mut().take_error() {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl<S, K, G, F, Fut> FusedFuture for TryForEachKeyed<S, K, G, F, Fut>
where
    S: TryStream,
    K: Hash + Eq + Clone,
    G: FnMut(&S::Ok) -> K,
    F: FnMut(S::Ok) -> Fut,
    Fut: Future<Output = Result<(), S::Error>>,
{
    fn is_terminated(&self) -> bool {
        self.core.is_done()
    }
}

impl<S: TryStream, K, G, F, Fut> fmt::Debug for TryForEachKeyed<S, K, G, F, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt("TryForEachKeyed", f)
    }
}
