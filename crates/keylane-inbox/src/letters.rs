//! Lists, redrives and purges dead letters.

use std::fmt;
use std::sync::Arc;

use crate::error::StoreError;
use crate::letter::Letter;
use crate::store::InboxStore;

/// The dead letters of an inbox.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let inbox = keylane_inbox::Inbox::open(directory.path().join("orders")).await?;
/// let letters = inbox.letters();
/// for letter in letters.list(0, 100).await? {
///     println!("{}: {}", letter.message.sequence, letter.error);
///     letters.redrive([letter.message.sequence]).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Letters {
    store: Arc<dyn InboxStore>,
}

impl Letters {
    pub(crate) fn new(store: Arc<dyn InboxStore>) -> Self {
        Self { store }
    }

    /// Returns at most `limit` letters with a sequence above `after`, in the order of their
    /// sequences. The first page begins after 0.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    pub async fn list(&self, after: u64, limit: usize) -> Result<Vec<Letter>, StoreError> {
        self.store.letters(after, limit).await
    }

    /// Returns one letter, or `None` if the message is not a letter.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot be read.
    pub async fn show(&self, sequence: u64) -> Result<Option<Letter>, StoreError> {
        self.store.letter(sequence).await
    }

    /// Puts letters back among the waiting messages. Each goes ahead of the messages of its key
    /// that were accepted after it, and its attempts count from zero. Returns the sequences that
    /// were letters.
    ///
    /// A message of the key that is being handled is not interrupted.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: repeat the call.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, they may be redriven: all of them, or none.
    pub async fn redrive(
        &self,
        sequences: impl IntoIterator<Item = u64>,
    ) -> Result<Vec<u64>, StoreError> {
        self.store.redrive(Vec::from_iter(sequences)).await
    }

    /// Removes letters for ever. Returns the sequences that were letters.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: repeat the call.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, they may be removed: all of them, or none.
    pub async fn purge(
        &self,
        sequences: impl IntoIterator<Item = u64>,
    ) -> Result<Vec<u64>, StoreError> {
        self.store.purge_letters(Vec::from_iter(sequences)).await
    }
}

impl fmt::Debug for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letters").finish_non_exhaustive()
    }
}
