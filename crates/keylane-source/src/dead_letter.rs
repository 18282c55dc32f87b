//! Messages that are given up on, and where they go.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{BoxError, Failure};

/// A message that was given up on, and why.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct DeadLetter<K, M, E> {
    /// The key, or `None` for a keyless message.
    pub key: Option<K>,
    /// The message itself.
    pub message: M,
    /// The number of attempts; 0 if the handler never ran.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub failure: Failure<E>,
}

impl<K, M, E> DeadLetter<K, M, E> {
    /// Returns a letter with these parts.
    pub fn new(key: Option<K>, message: M, attempts: u32, failure: Failure<E>) -> Self {
        Self {
            key,
            message,
            attempts,
            failure,
        }
    }
}

/// A destination of dead letters: a table, a topic, a file.
///
/// The next message of the key starts only after the letter was accepted, so `accept` must return
/// `Ok` only when the letter is durable. A sink that fails is tried again, with growing waits,
/// until the dispatcher ends; meanwhile only this key waits, and
/// `inspect` says for what.
///
/// # Cancel safety
///
/// `abort`, and a deadline that passes, drop the future of `accept`. The message is then handed
/// back, and may be written a second time although the first write was done: keep the write
/// idempotent.
///
/// # Examples
///
/// ```
/// use std::sync::Mutex;
/// use keylane::error::BoxError;
/// use keylane::{DeadLetter, DeadLetterSink};
///
/// struct Shelf(Mutex<Vec<String>>);
///
/// #[keylane::async_trait]
/// impl DeadLetterSink<u64, String, std::io::Error> for Shelf {
///     async fn accept(
///         &self,
///         letter: &DeadLetter<u64, String, std::io::Error>,
///     ) -> Result<(), BoxError> {
///         self.0.lock().map_err(|_| "the shelf is broken")?.push(letter.message.clone());
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait DeadLetterSink<K, M, E>: Send + Sync {
    /// Stores the letter. An error means "not stored": the same letter is offered again later.
    async fn accept(&self, letter: &DeadLetter<K, M, E>) -> Result<(), BoxError>;
}

#[async_trait]
impl<K, M, E, T> DeadLetterSink<K, M, E> for Arc<T>
where
    T: DeadLetterSink<K, M, E> + ?Sized,
    K: Send + Sync,
    M: Send + Sync,
    E: Send + Sync,
{
    async fn accept(&self, letter: &DeadLetter<K, M, E>) -> Result<(), BoxError> {
        (**self).accept(letter).await
    }
}
