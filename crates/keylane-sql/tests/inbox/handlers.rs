//! Dispatchers and handlers of one type, for tests that need no other: the engine is compiled once
//! for each set of types, and its runner once for each type of a handler.

use std::pin::Pin;

use bytes::Bytes;
use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane::{Builder, Dispatcher};

type Handled = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// Returns the handler as one of the type that all tests share.
pub(crate) fn boxed<M: 'static, F>(
    handler: impl Fn(M) -> F + Send + Sync + 'static,
) -> Box<dyn Fn(M) -> Handled + Send + Sync>
where
    F: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    Box::new(move |message| Box::pin(handler(message)))
}

/// Returns the builder of a dispatcher of raw messages, in the order of their keys.
pub(crate) fn by_key()
-> Builder<Bytes, RawMessage, BoxError, impl Fn(&RawMessage) -> Option<Bytes> + Send + Sync> {
    Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
}
