//! Batches: the work for several messages of one key at once.

use std::fmt;
use std::future::Future;

use crate::handler::{Context, OfContextAndMessage, OfMessage};

/// The work for several messages of one key, in their order.
///
/// Like [`Handler`](crate::Handler), with a `Vec` of messages. A closure is enough. Its answer is a
/// [`BatchAnswer`]: one answer for all, or one for each.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane::Dispatcher;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let readings = Dispatcher::builder(|reading: &(u64, f64)| reading.0)
///     .batch(100, Duration::from_millis(5))
///     .spawn_batches(|batch: Vec<(u64, f64)>| async move {
///         println!("one insert for {} readings of device {}", batch.len(), batch[0].0);
///         Ok::<(), std::io::Error>(())
///     })?;
/// for value in [20.5, 20.6, 20.4] {
///     readings.send((7, value)).await?;
/// }
/// assert_eq!(readings.drain().await.done, 3);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle batches of `{M}` with keys of type `{K}`",
    label = "not a handler of batches for this dispatcher",
    note = "a handler of batches is an async closure over a `Vec` of messages: \
            `|batch: Vec<{M}>| async move {{ Ok::<(), MyError>(()) }}`",
    note = "it answers with `Result<(), E>` or `Result<Vec<O>, E>` for all of them, or with \
            `Vec<Result<O, E>>`, one for each",
    note = "its future must be `Send`"
)]
pub trait BatchHandler<K, M, Args = ()>: Send + Sync + 'static {
    /// The answer of the handler.
    type Answer: BatchAnswer;

    /// Handles the messages, once. There is at least one.
    fn handle(
        &self,
        context: &Context<K>,
        messages: Vec<M>,
    ) -> impl Future<Output = Self::Answer> + Send;
}

impl<K, M, F, Fut> BatchHandler<K, M, OfMessage> for F
where
    F: Fn(Vec<M>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: BatchAnswer> + Send,
{
    type Answer = Fut::Output;

    fn handle(
        &self,
        _: &Context<K>,
        messages: Vec<M>,
    ) -> impl Future<Output = Self::Answer> + Send {
        self(messages)
    }
}

impl<K, M, F, Fut> BatchHandler<K, M, OfContextAndMessage> for F
where
    K: Clone,
    F: Fn(Context<K>, Vec<M>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: BatchAnswer> + Send,
{
    type Answer = Fut::Output;

    fn handle(
        &self,
        context: &Context<K>,
        messages: Vec<M>,
    ) -> impl Future<Output = Self::Answer> + Send {
        self(context.clone(), messages)
    }
}

/// The answer of a handler to a batch.
///
/// | type | means |
/// | --- | --- |
/// | `Result<(), E>` | all of them succeeded, or failed |
/// | `Result<Vec<O>, E>` | all of them succeeded, with one answer each, in order; or all failed |
/// | `Vec<Result<O, E>>` | one answer each, in their order |
///
/// Where all fail, the attempt counts for the first message, which is tried again by itself, so
/// that one bad message is found. The others wait behind it, as if they had not started. Where some
/// fail, the others settle, and the failed messages go back in front of the lane, in their order. A
/// message without an answer has failed with
/// [`Failure::NoAnswer`](crate::error::Failure::NoAnswer).
///
/// That needs a [`retry`](crate::Builder::retry) of two attempts or more. Without one, the first
/// message is given up at once, although another one may be the bad one. With
/// [`on_exhausted`](crate::Builder::on_exhausted) the messages are given up one after the other;
/// without it the others settle with the first
/// ([`Failure::WithBatch`](crate::error::Failure::WithBatch)).
pub trait BatchAnswer: Send + 'static {
    /// The answer for one message.
    type Output: Send + 'static;
    /// The error of a failed attempt.
    type Error: fmt::Debug + Send + Sync + 'static;

    /// Returns one answer for each of `messages` messages, in their order, or one error for all.
    /// Answers beyond that are dropped.
    fn into_answers(self, messages: usize) -> Answers<Self::Output, Self::Error>;
}

/// One answer for each message of a batch, in their order, or the error of all.
pub type Answers<O, E> = Result<Vec<Result<O, E>>, E>;

impl<E: fmt::Debug + Send + Sync + 'static> BatchAnswer for Result<(), E> {
    type Output = ();
    type Error = E;

    fn into_answers(self, messages: usize) -> Answers<(), E> {
        self.map(|()| (0..messages).map(|_| Ok(())).collect())
    }
}

impl<O, E> BatchAnswer for Result<Vec<O>, E>
where
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    type Output = O;
    type Error = E;

    fn into_answers(self, _: usize) -> Answers<O, E> {
        self.map(|answers| answers.into_iter().map(Ok).collect())
    }
}

impl<O, E> BatchAnswer for Vec<Result<O, E>>
where
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    type Output = O;
    type Error = E;

    fn into_answers(self, _: usize) -> Answers<O, E> {
        Ok(self)
    }
}
