//! What the tests share.

use std::future::Future;
use std::pin::Pin;

type Answer = Pin<Box<dyn Future<Output = Result<u64, &'static str>> + Send>>;

/// One type for all handlers: the engine's runner is compiled once.
pub(crate) type Handler = Box<dyn Fn(u64) -> Answer + Send + Sync>;

/// A handler of numbers.
pub(crate) fn boxed<F>(handler: impl Fn(u64) -> F + Send + Sync + 'static) -> Handler
where
    F: Future<Output = Result<u64, &'static str>> + Send + 'static,
{
    Box::new(move |n| Box::pin(handler(n)))
}
