//! A store that fails, or is slow, when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keylane_inbox::error::{AcceptError, StoreError};
use keylane_inbox::store::{Accepted, InboxStore, Redriven, Settled, Stats, Tail};
use keylane_inbox::{Inbox, Letter, NewMessage, StoredMessage, async_trait};
use keylane_testkit::Gate;
use tokio::sync::watch;

use crate::support::Rig;

/// A store in front of the one of a rig.
pub(crate) struct Hindered {
    store: Arc<dyn InboxStore>,
    /// So many settlements fail before one is let through.
    pub(crate) failing: AtomicUsize,
    /// Settlements wait here before they are written.
    pub(crate) settlements: Gate,
    /// Pages wait here after they were read.
    pub(crate) pages: Gate,
    /// How often a reader has asked which letters came back.
    pub(crate) asked: AtomicUsize,
}

impl Hindered {
    /// Puts it in front of the store of `rig`. Nothing fails and nothing waits until it is told to.
    pub(crate) fn in_front_of(rig: &mut Rig) -> Arc<Self> {
        let hindered = Arc::new(Self {
            store: Arc::clone(rig.inbox.store()),
            failing: AtomicUsize::new(0),
            settlements: Gate::new(),
            pages: Gate::new(),
            asked: AtomicUsize::new(0),
        });
        hindered.settlements.open();
        hindered.pages.open();
        rig.inbox = Inbox::with_store(Arc::clone(&hindered) as Arc<dyn InboxStore>);
        hindered
    }
}

#[async_trait]
impl InboxStore for Hindered {
    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        self.settlements.pass().await;
        let left = |failing: usize| failing.checked_sub(1);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        match self.failing.fetch_update(set, get, left) {
            Ok(_) => Err(StoreError::NotCommitted {
                place: "the store".into(),
                reason: "as it was told".into(),
                no_space: false,
            }),
            Err(_) => self.store.settle(settled).await,
        }
    }

    async fn accept(
        &self,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Accepted>, AcceptError<Vec<NewMessage>>> {
        self.store.accept(messages).await
    }

    async fn scan(
        &self,
        from: u64,
        count: usize,
        bytes: usize,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        let page = self.store.scan(from, count, bytes).await;
        self.pages.pass().await;
        page
    }

    async fn read(&self, sequences: &[u64]) -> Result<Vec<Option<StoredMessage>>, StoreError> {
        self.store.read(sequences).await
    }

    async fn letters(&self, after: u64, limit: usize) -> Result<Vec<Letter>, StoreError> {
        self.store.letters(after, limit).await
    }

    async fn letter(&self, sequence: u64) -> Result<Option<Letter>, StoreError> {
        self.store.letter(sequence).await
    }

    async fn redrive(&self, sequences: Vec<u64>) -> Result<Vec<u64>, StoreError> {
        self.store.redrive(sequences).await
    }

    async fn purge_letters(&self, sequences: Vec<u64>) -> Result<Vec<u64>, StoreError> {
        self.store.purge_letters(sequences).await
    }

    async fn version(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        self.store.version(key).await
    }

    async fn record_version(&self, key: &[u8], version: u64) -> Result<(), StoreError> {
        self.store.record_version(key, version).await
    }

    fn tail(&self) -> watch::Receiver<Tail> {
        self.store.tail()
    }

    fn take_redriven(&self) -> Redriven {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.store.take_redriven()
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.store.stats().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}
