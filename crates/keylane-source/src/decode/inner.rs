//! The source of raw messages, and the calls of it that must not be dropped halfway.

use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::SourceError;

/// A source, and the call of it that is under way.
///
/// [`Source::receive`](crate::Source::receive) is dropped at any await, and the other calls are not: a source may rely on
/// that. So a call that [`Decoded`](crate::Decoded) makes of its own accord, while it receives,
/// lives here. It goes on in the next call, whichever that is.
pub(super) struct Inner<S> {
    /// Locked by the call that is under way, and by nothing else.
    source: Arc<Mutex<S>>,
    call: Option<BoxFuture<'static, Called>>,
}

/// What a call has returned.
pub(super) enum Called {
    /// It was told of settlements, or of leases.
    Told(Result<(), SourceError>),
    /// Whether it keeps the letter of this key.
    Letter(u64, Result<(), String>),
    /// The letter of this key is on its way.
    Pending(u64),
}

impl<S> Inner<S> {
    pub(super) fn new(source: S) -> Self {
        Self {
            source: Arc::new(Mutex::new(source)),
            call: None,
        }
    }

    /// Looks at the source, unless a call is under way.
    pub(super) fn look<R>(&self, look: impl FnOnce(&S) -> R) -> Option<R> {
        let source = self.source.try_lock().ok()?;
        Some(look(&source))
    }

    /// The source, when no call is under way.
    pub(super) fn source(&mut self) -> &mut S {
        debug_assert!(
            self.call.is_none(),
            "a call is finished before the next one"
        );
        let source = Arc::get_mut(&mut self.source).expect("only a call shares the source");
        source.get_mut()
    }

    /// Waits for the call that is under way. Dropped, it loses nothing.
    pub(super) async fn finished(&mut self) -> Option<Called> {
        let called = self.call.as_mut()?.await;
        self.call = None;
        Some(called)
    }

    /// Drops the call that is under way: the source is opened again, or is gone.
    pub(super) fn interrupt(&mut self) {
        self.call = None;
    }

    /// Begins a call.
    pub(super) fn begin<C>(&mut self, call: impl FnOnce(OwnedMutexGuard<S>) -> C)
    where
        C: Future<Output = Called> + Send + 'static,
    {
        let source = Arc::clone(&self.source).try_lock_owned();
        let source = source.expect("a call is finished before the next one");
        self.call = Some(call(source).boxed());
    }
}
