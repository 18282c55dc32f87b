//! Outputs and errors as a stream.

use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{FusedStream, IntoStream};
use futures::{Stream, TryStream, TryStreamExt};
use pin_project_lite::pin_project;

use super::core::Core;
use super::limits::settings;
use super::on_error::OnError;
use super::outputs::{InOrder, Unordered};

pin_project! {
    /// The stream of [`try_map_keyed`](crate::KeyedStreamExt::try_map_keyed): outputs and errors in
    /// the order of the elements.
    #[must_use = "streams do nothing unless polled"]
    pub struct TryMapKeyed<S, K, G, F, Fut>
    where
        S: TryStream,
        Fut: Future,
    {
        #[pin]
        core: Core<IntoStream<S>, K, S::Ok, G, F, Fut, InOrder<Fut::Output>>,
        on_error: OnError,
    }
}

pin_project! {
    /// The stream of [`try_map_keyed_unordered`](crate::KeyedStreamExt::try_map_keyed_unordered):
    /// outputs and errors as they are ready.
    #[must_use = "streams do nothing unless polled"]
    pub struct TryMapKeyedUnordered<S, K, G, F, Fut>
    where
        S: TryStream,
        Fut: Future,
    {
        #[pin]
        core: Core<IntoStream<S>, K, S::Ok, G, F, Fut, Unordered<Fut::Output>>,
        on_error: OnError,
    }
}

// Two types that differ in where their outputs wait.
macro_rules! adapter {
    ($name:ident, $outputs:ident) => {
        impl<S: TryStream, K, G, F, Fut: Future> $name<S, K, G, F, Fut> {
            settings!();

            /// Sets what happens after the first error. The default is [`OnError::Stop`].
            pub fn on_error(mut self, on_error: OnError) -> Self {
                self.on_error = on_error;
                self
            }
        }

        impl<S, K, G, F, Fut, A> $name<S, K, G, F, Fut>
        where
            S: TryStream,
            K: Hash + Eq + Clone,
            G: FnMut(&S::Ok) -> K,
            F: FnMut(S::Ok) -> Fut,
            Fut: Future<Output = Result<A, S::Error>>,
        {
            #[track_caller]
            pub(super) fn new(source: S, concurrency: usize, key: G, f: F) -> Self {
                Self {
                    core: Core::new(source.into_stream(), concurrency, key, f, $outputs::new()),
                    on_error: OnError::default(),
                }
            }
        }

        impl<S, K, G, F, Fut, A> Stream for $name<S, K, G, F, Fut>
        where
            S: TryStream,
            K: Hash + Eq + Clone,
            G: FnMut(&S::Ok) -> K,
            F: FnMut(S::Ok) -> Fut,
            Fut: Future<Output = Result<A, S::Error>>,
        {
            type Item = Fut::Output;

            fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Fut::Output>> {
                let this = self.project();
                let stops = *this.on_error == OnError::Stop;
                let is_last = |output: &Fut::Output| stops && output.is_err();
                this.core.poll_output(cx, |item| item.map_err(Err), is_last)
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                let (lower, upper) = self.core.size_hint();
                match self.on_error {
                    // The first output may be the last.
                    OnError::Stop => (lower.min(1), upper),
                    OnError::Continue => (lower, upper),
                }
            }
        }

        impl<S, K, G, F, Fut, A> FusedStream for $name<S, K, G, F, Fut>
        where
            S: TryStream,
            K: Hash + Eq + Clone,
            G: FnMut(&S::Ok) -> K,
            F: FnMut(S::Ok) -> Fut,
            Fut: Future<Output = Result<A, S::Error>>,
        {
            fn is_terminated(&self) -> bool {
                self.core.is_done()
            }
        }

        impl<S: TryStream, K, G, F, Fut: Future> fmt::Debug for $name<S, K, G, F, Fut> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.core.fmt(stringify!($name), f)
            }
        }
    };
}

adapter!(TryMapKeyed, InOrder);
adapter!(TryMapKeyedUnordered, Unordered);
