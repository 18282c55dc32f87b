//! Giving up on a message: what happens then, and where it goes.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{BoxError, Failure};

/// A message given up on, with everything known about why.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct DeadLetter<K, M, E> {
    /// The key, or `None` for a keyless message.
    pub key: Option<K>,
    /// The message itself.
    pub message: M,
    /// How often the handler was tried; 0 if it never was.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub failure: Failure<E>,
}

/// Where dead letters go: a table, a topic, a file.
///
/// The next message of the key starts only after the letter was accepted, so `accept` must return
/// `Ok` only when the letter is durable. A sink that fails is tried again, with growing waits,
/// until the dispatcher ends; meanwhile only this key waits, and
/// [`inspect`](crate::Dispatcher::inspect) says for what.
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

pub(crate) type Sink<K, M, E> = Arc<dyn DeadLetterSink<K, M, E>>;

/// What happens to a message, and to its key, after the last attempt.
#[non_exhaustive]
pub enum OnExhausted<K, M, E> {
    /// Settle it as failed and go on with the key. The default.
    ///
    /// What it leaves behind: the `tracing` warning `an attempt failed`; a count, in
    /// [`Report::discarded`](crate::Report::discarded) and
    /// [`Stats::discarded`](crate::watching::Stats::discarded); the event
    /// [`Event::Discarded`](crate::watching::Event::Discarded); and, if there is a receipt,
    /// [`ReceiptError::Failed`](crate::error::ReceiptError::Failed).
    Discard,
    /// Give it to the sink; the key goes on when the sink has accepted it.
    DeadLetter(Arc<dyn DeadLetterSink<K, M, E>>),
    /// Have the source of the message keep the dead letter, if it has the
    /// [feature](crate::source::Features::dead_letters); the key goes on when it is durable there. A
    /// message that was sent directly stops its key instead, as with [`Halt`](Self::Halt).
    AtSource,
    /// Stop the key: later messages stay parked until
    /// [`LaneControl`](crate::LaneControl) says `resume`, `skip`
    /// or `replace`. What money needs. A keyless message has no lane to stop: if it comes from a source,
    /// it is held, and its source gets it back when the intake ends; otherwise it is discarded.
    Halt,
}

impl<K, M, E> OnExhausted<K, M, E> {
    /// [`OnExhausted::DeadLetter`] from a sink by value.
    pub fn dead_letter(sink: impl DeadLetterSink<K, M, E> + 'static) -> Self {
        Self::DeadLetter(Arc::new(sink))
    }
}

impl<K, M, E> fmt::Debug for OnExhausted<K, M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discard => "Discard",
            Self::DeadLetter(_) => "DeadLetter(..)",
            Self::AtSource => "AtSource",
            Self::Halt => "Halt",
        })
    }
}
