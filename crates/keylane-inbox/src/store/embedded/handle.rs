//! The handle of the store.

use std::fmt;
use std::io;
use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use keylane_disk::name_of;
use redb::{ReadTransaction, StorageBackend};
use tokio::sync::{oneshot, watch};

use super::fault::Wrapped;
use super::inner::Inner;
use super::op::{Alone, Letters, Op};
use super::open;
use super::reads;
use super::settings::Settings;
use crate::attempts::Marks;
use crate::error::{AcceptError, OpenError, StoreError};
use crate::letter::Letter;
use crate::message::{NewMessage, StoredMessage};
use crate::store::{Accepted, InboxStore, Redriven, Settled, Stats, Tail};

/// An [`InboxStore`] in a directory, without a server.
///
/// A handle is cheap to clone, and all clones are the same store. After the last one is dropped the
/// store closes by itself, a moment later; [`close`](InboxStore::close) waits for that, and returns
/// its result.
///
/// # Runtime
///
/// Call its methods inside a Tokio runtime: reads run on its blocking threads.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
    name: Arc<str>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, and creates both if they do not exist.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names the obstacle, and says what to do.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store is opened and closed again in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane_inbox::NewMessage;
    /// use keylane_inbox::store::{EmbeddedStore, InboxStore, Settings};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let directory = directory.path().join("orders");
    /// let store = EmbeddedStore::open(directory, Settings::default()).await?;
    /// let accepted = store.accept(vec![NewMessage::new("user-7", "an order")]).await?;
    /// let waiting = store.scan(0, 100, 1 << 20).await?;
    /// assert_eq!(waiting[0].sequence, accepted[0].sequence());
    /// store.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open(
        directory: impl Into<PathBuf>,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let directory = directory.into();
        let name = settings.name.clone();
        let name = name.unwrap_or_else(|| name_of(&directory)).into();
        let inner = blocking(move || open::directory(&directory, settings)).await?;
        Ok(Self {
            inner: Arc::new(inner),
            name,
        })
    }

    /// Opens a store whose bytes are in a backend of redb's, without a directory, a lock and start
    /// marks: for tests that fail or lose writes. After a failed commit the backend is opened once
    /// more; one without bytes becomes a new store. Blocks.
    #[doc(hidden)]
    pub fn open_with_backend<B: StorageBackend>(
        open: impl Fn() -> io::Result<B> + Send + Sync + 'static,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let opener =
            Arc::new(move || -> io::Result<Box<dyn StorageBackend>> { Ok(Box::new(open()?)) });
        let name = settings.name.clone().unwrap_or_default().into();
        Ok(Self {
            inner: Arc::new(open::backend(opener, settings)?),
            name,
        })
    }

    /// Makes the file as short as it can be, and returns its length in bytes. The store does this
    /// by itself when the file stays more than twice as long as it needs to be. It blocks all other
    /// reads and writes.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the file could not be read or written. Nothing is lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the file is compacted all the same.
    pub async fn compact(&self) -> Result<u64, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.call(Op::Alone(Alone::Compact(reply)), answer).await?
    }

    /// Returns the file of start marks, which a store without a directory does not have.
    pub(crate) fn marks(&self) -> Option<&Arc<Marks>> {
        self.inner.marks.as_ref()
    }

    /// Sends a call to the writer, and waits for its answer.
    async fn call<T>(&self, op: Op, answer: oneshot::Receiver<T>) -> Result<T, StoreError> {
        if let Err(op) = self.inner.send(op) {
            op.refuse(StoreError::Closed);
        }
        answer.await.map_err(|_| StoreError::Closed)
    }

    async fn read_with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ReadTransaction) -> Result<T, Wrapped> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.inner.shared);
        let answer = blocking(move || shared.read(work)).await;
        if answer.is_err() && self.inner.shared.read_failed() {
            // If the writer is gone, there is nothing to mend.
            let _ = self.inner.send(Op::Alone(Alone::Mend));
        }
        answer
    }
}

#[async_trait]
impl InboxStore for EmbeddedStore {
    async fn accept(
        &self,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Accepted>, AcceptError<Vec<NewMessage>>> {
        if let Err(error) = self.inner.limits.check(&messages) {
            return Err(AcceptError::Limit(error, messages));
        }
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        // If the future is dropped here, nothing is stored.
        let Some(room) = self.inner.room(&messages).await else {
            return Err(AcceptError::Store(StoreError::Closed, messages));
        };
        let (reply, answer) = oneshot::channel();
        let op = Op::Accept {
            accepted: Vec::with_capacity(messages.len()),
            messages,
            reply,
            room,
        };
        // If the future is dropped from here on, the message is stored all the same.
        match self.call(op, answer).await {
            Ok(accepted) => accepted,
            // The writer panicked: its thread is gone, with the messages.
            Err(error) => Err(AcceptError::Store(error, Vec::new())),
        }
    }

    async fn scan(
        &self,
        from: u64,
        count: usize,
        bytes: usize,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        self.read_with(move |transaction| reads::scan(transaction, from, count, bytes))
            .await
    }

    async fn read(&self, sequences: &[u64]) -> Result<Vec<Option<StoredMessage>>, StoreError> {
        let sequences = sequences.to_vec();
        self.read_with(move |transaction| reads::read(transaction, &sequences))
            .await
    }

    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.call(Op::Settle { settled, reply }, answer).await?
    }

    async fn letters(&self, after: u64, limit: usize) -> Result<Vec<Letter>, StoreError> {
        self.read_with(move |transaction| reads::letters(transaction, after, limit))
            .await
    }

    async fn letter(&self, sequence: u64) -> Result<Option<Letter>, StoreError> {
        self.read_with(move |transaction| reads::letter(transaction, sequence))
            .await
    }

    async fn redrive(&self, sequences: Vec<u64>) -> Result<Vec<u64>, StoreError> {
        let (letters, answer) = Letters::new(sequences);
        self.call(Op::Redrive(letters), answer).await?
    }

    async fn purge_letters(&self, sequences: Vec<u64>) -> Result<Vec<u64>, StoreError> {
        let (letters, answer) = Letters::new(sequences);
        self.call(Op::Purge(letters), answer).await?
    }

    async fn version(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let key = key.to_vec();
        self.read_with(move |transaction| reads::version(transaction, &key))
            .await
    }

    async fn record_version(&self, key: &[u8], version: u64) -> Result<(), StoreError> {
        let key = key.to_vec();
        let (reply, answer) = oneshot::channel();
        let op = Op::RecordVersion {
            key,
            version,
            reply,
        };
        self.call(op, answer).await?
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn tail(&self) -> watch::Receiver<Tail> {
        self.inner.shared.tail.subscribe()
    }

    fn take_redriven(&self) -> Redriven {
        self.inner.shared.redriven().take()
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let mut stats = self.read_with(reads::stats).await?;
        let shared = &self.inner.shared;
        stats.file_bytes = shared.watch.length();
        stats.commits = shared.counts.commits.load(Ordering::Relaxed);
        stats.failed_commits = shared.counts.failed_commits.load(Ordering::Relaxed);
        stats.compactions = shared.counts.compactions.load(Ordering::Relaxed);
        Ok(stats)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.send_last();
        let mut ended = self.inner.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(closed) => closed.clone().expect("it was waited for"),
            Err(_) => Err(StoreError::Closed),
        }
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore")
            .field("place", &self.inner.shared.place)
            .finish_non_exhaustive()
    }
}

/// Runs work on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            // The runtime shuts down, and does not poll this again.
            Err(_) => std::future::pending().await,
        },
    }
}
