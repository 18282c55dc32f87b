//! Destinations of messages that cannot be decoded.

use std::sync::Arc;

use async_trait::async_trait;

use crate::BoxError;
use crate::RawMessage;

/// A message that could not be decoded.
#[non_exhaustive]
#[derive(Debug)]
pub struct RawLetter {
    /// The message as it came.
    pub raw: RawMessage,
    /// The error of the decoding function, or the text of its panic.
    pub error: BoxError,
    /// The name of the source.
    pub source: String,
}

impl RawLetter {
    /// Returns a letter. For the tests of sinks: [`Decoded`](crate::Decoded) makes its own.
    pub fn new(raw: RawMessage, error: impl Into<BoxError>, source: impl Into<String>) -> Self {
        Self {
            raw,
            error: error.into(),
            source: source.into(),
        }
    }
}

/// A destination of messages that cannot be decoded: a table, a topic, a file.
///
/// Messages behind a letter of the same raw key are handed over only after the letter was accepted,
/// so `accept` must return `Ok` only when the letter is durable. A sink that fails or panics is
/// called again: after 100 milliseconds at first, then after twice as long each time, up to 30
/// seconds. Meanwhile only this key waits.
///
/// Letters of different keys are offered at the same time, up to 64. A sink that does not answer
/// for so many of them holds up all other letters, so give it a time-out.
///
/// # Cancel safety
///
/// The future of `accept` is dropped when the generation of the message ends, when the source has
/// to be opened again, and at the end of the intake. The message then goes back, and its letter may
/// be written a second time although the first write was done. The same may happen after a crash.
/// Keep the write idempotent.
///
/// # Examples
///
/// ```
/// use std::sync::Mutex;
/// use keylane::error::BoxError;
/// use keylane::source::{RawLetter, RawLetterSink};
///
/// struct Shelf(Mutex<Vec<(Vec<u8>, String)>>);
///
/// #[keylane::async_trait]
/// impl RawLetterSink for Shelf {
///     async fn accept(&self, letter: &RawLetter) -> Result<(), BoxError> {
///         let mut shelf = self.0.lock().map_err(|_| "the shelf is broken")?;
///         shelf.push((letter.raw.payload.to_vec(), letter.error.to_string()));
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait RawLetterSink: Send + Sync {
    /// Stores the letter. An error means "not stored": the same letter is offered again later.
    async fn accept(&self, letter: &RawLetter) -> Result<(), BoxError>;
}

#[async_trait]
impl<T: RawLetterSink + ?Sized> RawLetterSink for Arc<T> {
    async fn accept(&self, letter: &RawLetter) -> Result<(), BoxError> {
        (**self).accept(letter).await
    }
}
