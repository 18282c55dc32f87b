//! The handle of an inbox.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;

use crate::attempts::Marks;
use crate::error::{AcceptError, StoreError};
use crate::letters::Letters;
use crate::message::NewMessage;
use crate::store::{Accepted, EmbeddedStore, InboxStore, Stats};

/// A durable inbox: accepted messages are on the disk.
///
/// A handle is cheap to clone, and all clones are the same inbox. Only one process at a time may
/// have it open, and only once.
///
/// # Order
///
/// Calls that are awaited one after the other keep that order. If calls wait at the same time, any
/// may come first; the messages of one call stay together.
///
/// # Duplicates
///
/// A message with an id, or with a version, is stored once: the same id again, or the same key and
/// version, is answered with [`Accepted::Duplicate`] and the sequence of the first. By default the
/// inbox remembers this for 24 hours and for 1,000,000 ids and versions; the
/// [builder](Self::builder) changes both. The time is that of the wall clock. If the clock jumps
/// forward, duplicates may be stored as new messages; if it jumps back, they may be absorbed for
/// that much longer. Neither loses a message that is not a duplicate.
///
/// # Examples
///
/// ```
/// use keylane_inbox::{Inbox, NewMessage};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path().join("orders");
/// let inbox = Inbox::open(directory).await?;
/// inbox.accept("user-7", "the first order").await?;
///
/// let order = NewMessage::new("user-7", "the second order").id("order-4711");
/// assert!(!inbox.accept_message(order.clone()).await?.is_duplicate());
/// assert!(inbox.accept_message(order).await?.is_duplicate());
///
/// assert_eq!(inbox.stats().await?.waiting, 2);
/// inbox.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Inbox {
    store: Arc<dyn InboxStore>,
    marks: Option<Arc<Marks>>,
    /// Whether it has a source.
    taken: Arc<AtomicBool>,
}

impl Inbox {
    /// Creates an inbox on a store of your own. It counts attempts only while the process lives.
    pub fn with_store(store: Arc<dyn InboxStore>) -> Self {
        Self {
            store,
            marks: None,
            taken: Arc::default(),
        }
    }

    pub(crate) fn embedded(store: EmbeddedStore) -> Self {
        Self {
            marks: store.marks().cloned(),
            store: Arc::new(store),
            taken: Arc::default(),
        }
    }

    /// Stores a message. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// [`AcceptError`] gives the message back, and says whether it may be stored all the same.
    ///
    /// # Cancel safety
    ///
    /// While the call waits for room, nothing is stored; after that, the message is stored even if
    /// the future is dropped. A caller cannot tell the two apart: after a drop, the message may be
    /// stored. A message with an id can be sent again without harm.
    pub async fn accept(
        &self,
        key: impl Into<Bytes>,
        payload: impl Into<Bytes>,
    ) -> Result<Accepted, AcceptError<NewMessage>> {
        self.accept_message(NewMessage::new(key, payload)).await
    }

    /// Stores a message with an id, a version or headers.
    ///
    /// # Errors
    ///
    /// The same as those of [`accept`](Self::accept).
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`accept`](Self::accept).
    pub async fn accept_message(
        &self,
        message: NewMessage,
    ) -> Result<Accepted, AcceptError<NewMessage>> {
        let answer = self.store.accept(vec![message]).await;
        let accepted = answer.map_err(|error| {
            error.map(|mut messages| {
                let message = messages.pop();
                message.unwrap_or_else(|| NewMessage::new(Bytes::new(), Bytes::new()))
            })
        })?;
        let first = accepted.first().copied();
        Ok(first.expect("a store answers for every message"))
    }

    /// Stores all messages or none, with one sync. The answers are in the order of the messages.
    ///
    /// # Errors
    ///
    /// [`AcceptError`] gives all of them back.
    ///
    /// # Cancel safety
    ///
    /// The same as that of [`accept`](Self::accept), for all messages together.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane_inbox::{Inbox, NewMessage};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let inbox = Inbox::open(directory.path().join("orders")).await?;
    /// let orders = (1..=3).map(|n| NewMessage::new("user-7", format!("order {n}")));
    /// let accepted = inbox.accept_many(orders).await?;
    /// assert_eq!(accepted.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn accept_many(
        &self,
        messages: impl IntoIterator<Item = NewMessage>,
    ) -> Result<Vec<Accepted>, AcceptError<Vec<NewMessage>>> {
        self.store.accept(Vec::from_iter(messages)).await
    }

    /// Returns the dead letters.
    pub fn letters(&self) -> Letters {
        Letters::new(Arc::clone(&self.store))
    }

    /// Returns how much the inbox contains.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    pub async fn stats(&self) -> Result<Stats, StoreError> {
        self.store.stats().await
    }

    /// Returns the store of the inbox.
    pub fn store(&self) -> &Arc<dyn InboxStore> {
        &self.store
    }

    /// Returns the file that counts attempts beyond the life of the process, if there is one.
    pub(crate) fn marks(&self) -> Option<&Arc<Marks>> {
        self.marks.as_ref()
    }

    /// Returns whether it has a source.
    pub(crate) fn taken(&self) -> &Arc<AtomicBool> {
        &self.taken
    }

    /// Accepts no more messages, waits for the writes in progress, and releases the directory.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the last writes could not be made durable. The directory is released all
    /// the same.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the inbox is closed all the same; another call waits for it.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}
