//! What the console needs of a store of dead letters.

use std::time::SystemTime;

use keylane::error::BoxError;
use keylane::{Bytes, async_trait};
use thiserror::Error;

/// A store of dead letters that the console shows, redrives and purges.
///
/// With the feature `inbox` the letters of an inbox are one, on disk or in SQL:
/// `keylane_inbox::Letters`. With the feature `redis` those of a list are one,
/// `keylane_redis::ListLetters`, and those in a stream, `keylane_redis::StreamLetters`. With the
/// feature `kafka` those in a topic are one, `keylane_kafka::KafkaLetters`. Implement it for a
/// store of your own.
///
/// # Examples
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Mutex, PoisonError};
///
/// use keylane::error::BoxError;
/// use keylane_console::{LetterStore, StoredLetter};
///
/// /// Letters by their numbers.
/// struct Shelf(Mutex<BTreeMap<u64, StoredLetter>>);
///
/// #[keylane::async_trait]
/// impl LetterStore for Shelf {
///     async fn list(
///         &self,
///         after: Option<&str>,
///         most: usize,
///     ) -> Result<Vec<StoredLetter>, BoxError> {
///         let after: u64 = after.map_or(Ok(0), str::parse)?;
///         let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         Ok(all.range(after + 1..).take(most).map(|(_, letter)| letter.clone()).collect())
///     }
///
///     async fn show(&self, id: &str) -> Result<Option<StoredLetter>, BoxError> {
///         let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         Ok(all.get(&id.parse()?).cloned())
///     }
///
///     async fn redrive(&self, ids: &[String]) -> Result<u64, BoxError> {
///         // Send each of them again, and then remove it.
///         self.purge(ids).await
///     }
///
///     async fn purge(&self, ids: &[String]) -> Result<u64, BoxError> {
///         let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         let gone = ids.iter().filter(|id| id.parse().is_ok_and(|id| all.remove(&id).is_some()));
///         Ok(gone.count() as u64)
///     }
/// }
/// ```
#[async_trait]
pub trait LetterStore: Send + Sync + 'static {
    /// Returns at most `most` letters behind the one with the id `after`, or the first ones, in
    /// the order in which they are to be redriven.
    ///
    /// # Errors
    ///
    /// The text of the error is shown to the operator.
    async fn list(&self, after: Option<&str>, most: usize) -> Result<Vec<StoredLetter>, BoxError>;

    /// Returns the letter with this id; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    async fn show(&self, id: &str) -> Result<Option<StoredLetter>, BoxError>;

    /// Has these letters handled again, in this order. Returns how many of them were letters.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list). Some of them may be redriven.
    async fn redrive(&self, ids: &[String]) -> Result<u64, BoxError>;

    /// Removes these letters for ever. Returns how many of them were letters.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list). Some of them may be gone.
    async fn purge(&self, ids: &[String]) -> Result<u64, BoxError>;
}

/// A dead letter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredLetter {
    /// Names it in its store.
    pub id: String,
    /// The key of the message.
    pub key: Option<Bytes>,
    /// The message.
    pub payload: Bytes,
    /// The headers of the message.
    pub headers: Vec<(String, Bytes)>,
    /// How often its handler was started.
    pub attempts: u32,
    /// Why it was given up, in a word or two: `failed`, `panicked`, `expired`.
    pub cause: String,
    /// The last error.
    pub error: String,
    /// The time at which it became a letter.
    pub at: Option<SystemTime>,
    /// The time at which its source accepted the message.
    pub accepted_at: Option<SystemTime>,
    /// The id that the producer gave the message.
    pub message_id: Option<Bytes>,
    /// The place of the message among those of its key.
    pub version: Option<u64>,
}

/// A text that is the id of no letter.
#[derive(Debug, Error)]
#[error("{text:?} is not the id of a letter here, take one of the list: {why}")]
pub(super) struct NoId {
    pub(super) text: String,
    pub(super) why: String,
}
