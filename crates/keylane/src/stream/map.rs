//! Answers as a stream.

use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::FusedStream;
use pin_project_lite::pin_project;

use super::answers::{AsTheyCome, InOrder};
use super::core::Core;
use super::limits::settings;

pin_project! {
    /// Answers in the order of the elements: [`map_keyed`](crate::KeyedStreamExt::map_keyed).
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
    /// Answers as they come: [`map_keyed_unordered`](crate::KeyedStreamExt::map_keyed_unordered).
    #[must_use = "streams do nothing unless polled"]
    pub struct MapKeyedUnordered<S, K, G, F, Fut>
    where
        S: Stream,
        Fut: Future,
    {
        #[pin]
        core: Core<S, K, S::Item, G, F, Fut, AsTheyCome<Fut::Output>>,
    }
}

// Two types that differ in where their answers wait.
macro_rules! answers {
    ($name:ident, $answers:ident) => {
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
                let core = Core::new(source, concurrency, key, f, $answers::new());
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
                self.project().core.poll_answer(cx, Ok, |_| false)
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
                self.core.is_over()
            }
        }

        impl<S: Stream, K, G, F, Fut: Future> fmt::Debug for $name<S, K, G, F, Fut> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.core.fmt(stringify!($name), f)
            }
        }
    };
}

answers!(MapKeyed, InOrder);
answers!(MapKeyedUnordered, AsTheyCome);
