//! Outputs as a stream.

use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::FusedStream;
use pin_project_lite::pin_project;

use super::core::Core;
use super::limits::settings;
use super::outputs::{InOrder, Unordered};

pin_project! {
    /// The stream of [`map_keyed`](crate::KeyedStreamExt::map_keyed): outputs in the order of the
    /// elements.
    #[must_use = "streams do nothing unless polled"]
    pub struct MapKeyed<S, K, G, F, Fut>
    where
        S: Stream,
        Fut: Future,
    {
        #[pin]
        core: Core<S, K, S::Item, G, F, Fut, InOrder<Fut::Output>>,
    }
}

pin_project! {
    /// The stream of [`map_keyed_unordered`](crate::KeyedStreamExt::map_keyed_unordered): outputs
    /// as they are ready.
    #[must_use = "streams do nothing unless polled"]
    pub struct MapKeyedUnordered<S, K, G, F, Fut>
    where
        S: Stream,
        Fut: Future,
    {
        #[pin]
        core: Core<S, K, S::Item, G, F, Fut, Unordered<Fut::Output>>,
    }
}

// Two types that differ in where their outputs wait.
macro_rules! adapter {
    ($name:ident, $outputs:ident) => {
        impl<S: Stream, K, G, F, Fut: Future> $name<S, K, G, F, Fut> {
            settings!();
        }

        impl<S, K, G, F, Fut> $name<S, K, G, F, Fut>
        where
            S: Stream,
            K: Hash + Eq + Clone,
            G: FnMut(&S::Item) -> K,
            F: FnMut(S::Item) -> Fut,
            Fut: Future,
        {
            #[track_caller]
            pub(super) fn new(source: S, concurrency: usize, key: G, f: F) -> Self {
                let core = Core::new(source, concurrency, key, f, $outputs::new());
                Self { core }
            }
        }

        impl<S, K, G, F, Fut> Stream for $name<S, K, G, F, Fut>
        where
            S: Stream,
            K: Hash + Eq + Clone,
            G: FnMut(&S::Item) -> K,
            F: FnMut(S::Item) -> Fut,
            Fut: Future,
        {
            type Item = Fut::Output;

            fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Fut::Output>> {
                self.project().core.poll_output(cx, Ok, |_| false)
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.core.size_hint()
            }
        }

        impl<S, K, G, F, Fut> FusedStream for $name<S, K, G, F, Fut>
        where
            S: Stream,
            K: Hash + Eq + Clone,
            G: FnMut(&S::Item) -> K,
            F: FnMut(S::Item) -> Fut,
            Fut: Future,
        {
            fn is_terminated(&self) -> bool {
                self.core.is_done()
            }
        }

        impl<S: Stream, K, G, F, Fut: Future> fmt::Debug for $name<S, K, G, F, Fut> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.core.fmt(stringify!($name), f)
            }
        }
    };
}

adapter!(MapKeyed, InOrder);
adapter!(MapKeyedUnordered, Unordered);
