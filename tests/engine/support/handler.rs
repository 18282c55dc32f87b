//! Handlers of one type each, so that the engine's runner is compiled once for all of them.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;

use keylane::Context;
use keylane::routing::HashLane;

type Answer<O, E> = Pin<Box<dyn Future<Output = Result<O, E>> + Send>>;
type Handler<K, M, O, E> = Box<dyn Fn(Context<K>, M) -> Answer<O, E> + Send + Sync>;

/// A handler of numbers.
pub(crate) fn boxed<F>(
    handler: impl Fn(Context<u64>, u64) -> F + Send + Sync + 'static,
) -> Handler<u64, u64, u64, ()>
where
    F: Future<Output = Result<u64, ()>> + Send + 'static,
{
    Box::new(move |context, number| Box::pin(handler(context, number)))
}

/// A handler of users and numbers, in numbered lanes.
pub(crate) fn boxed_in_lanes<F>(
    handler: impl Fn(Context<HashLane>, (u64, u64)) -> F + Send + Sync + 'static,
) -> Handler<HashLane, (u64, u64), (), Infallible>
where
    F: Future<Output = Result<(), Infallible>> + Send + 'static,
{
    Box::new(move |context, order| Box::pin(handler(context, order)))
}
