//! The inbox as a store.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use keylane_inbox::error::{AcceptError, StoreError};
use keylane_inbox::store::{Redriven, Settled, Tail, check_limits};
use keylane_inbox::{Accepted, InboxStore, Letter, NewMessage, Stats, StoredMessage};
use tokio::sync::watch;

use super::backend::Dead;
use super::{SqlInbox, in_place, record};

/// The most sequences of redriven letters to keep until they are asked for.
const MOST_REDRIVEN: usize = 65_536;

#[async_trait]
impl InboxStore for SqlInbox {
    async fn accept(
        &self,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Accepted>, AcceptError<Vec<NewMessage>>> {
        if let Err(error) = check_limits(&messages) {
            return Err(AcceptError::Limit(error, messages));
        }
        if messages.is_empty() && !self.shared.is_closed.load(Ordering::SeqCst) {
            return Ok(Vec::new());
        }
        let messages = Arc::new(messages);
        let shared_messages = Arc::clone(&messages);
        let accepted = self.call(move |shared| {
            let messages = Arc::clone(&shared_messages);
            async move {
                let (items, within) = record::prepare(&messages);
                let accepted = shared.backend.accept(&items).await?;
                Ok(in_place(&accepted, &within))
            }
        });
        match accepted.await {
            Ok(accepted) => {
                self.note_stored(&accepted);
                Ok(accepted)
            }
            Err(error) => Err(AcceptError::Store(error, Arc::unwrap_or_clone(messages))),
        }
    }

    async fn scan(
        &self,
        from: u64,
        count: usize,
        bytes: usize,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        let (count, bytes) = (count as u64, bytes as u64);
        self.call(move |shared| async move { shared.backend.scan(from, count, bytes).await })
            .await
    }

    async fn read(&self, sequences: &[u64]) -> Result<Vec<Option<StoredMessage>>, StoreError> {
        let asked: Arc<[u64]> = sequences.into();
        let found = self.call(move |shared| {
            let asked = Arc::clone(&asked);
            async move { shared.backend.read(&asked).await }
        });
        let mut found = found.await?;
        Ok(sequences
            .iter()
            .map(|sequence| found.remove(sequence))
            .collect())
    }

    async fn settle(&self, settled: Vec<Settled>) -> Result<(), StoreError> {
        let (mut done, mut dead, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for settled in settled {
            // A message that settles twice counts once, with its first outcome.
            if !seen.insert(settled.sequence()) {
                continue;
            }
            match settled {
                Settled::DeadLetter {
                    sequence,
                    attempts,
                    kind,
                    error,
                } => dead.push(Dead {
                    sequence,
                    attempts,
                    kind,
                    error,
                }),
                settled => done.push(settled.sequence()),
            }
        }
        let (done, dead): (Arc<[u64]>, Arc<[Dead]>) = (done.into(), dead.into());
        self.call(move |shared| {
            let (done, dead) = (Arc::clone(&done), Arc::clone(&dead));
            async move { shared.backend.settle(&done, &dead).await }
        })
        .await
    }

    async fn letters(&self, after: u64, limit: usize) -> Result<Vec<Letter>, StoreError> {
        let limit = limit as u64;
        self.call(move |shared| async move { shared.backend.letters(after, limit).await })
            .await
    }

    async fn letter(&self, sequence: u64) -> Result<Option<Letter>, StoreError> {
        let Some(before) = sequence.checked_sub(1) else {
            return Ok(None);
        };
        let next = self.letters(before, 1).await?.pop();
        Ok(next.filter(|letter| letter.message.sequence == sequence))
    }

    async fn redrive(&self, sequences: Vec<u64>) -> Result<Vec<u64>, StoreError> {
        let asked: Arc<[u64]> = sequences.into();
        let called = Arc::clone(&asked);
        let found = self.call(move |shared| {
            let asked = Arc::clone(&called);
            async move { shared.backend.redrive(&asked).await }
        });
        let mut found = found.await?;
        let found: Vec<u64> = asked
            .iter()
            .copied()
            .filter(|asked| found.remove(asked))
            .collect();
        if !found.is_empty() {
            let mut redriven = self.redriven();
            redriven.extend(&found);
            let beyond = redriven.len().saturating_sub(MOST_REDRIVEN);
            redriven.drain(..beyond);
            drop(redriven);
            let count = found.len() as u64;
            self.shared.tail.send_modify(|tail| tail.redrives += count);
        }
        Ok(found)
    }

    async fn purge_letters(&self, sequences: Vec<u64>) -> Result<Vec<u64>, StoreError> {
        let asked: Arc<[u64]> = sequences.into();
        let called = Arc::clone(&asked);
        let found = self.call(move |shared| {
            let asked = Arc::clone(&called);
            async move { shared.backend.purge_letters(&asked).await }
        });
        let mut found = found.await?;
        Ok(asked
            .iter()
            .copied()
            .filter(|asked| found.remove(asked))
            .collect())
    }

    async fn version(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let key: Arc<[u8]> = key.into();
        self.call(move |shared| {
            let key = Arc::clone(&key);
            async move { shared.backend.version(&key).await }
        })
        .await
    }

    async fn record_version(&self, key: &[u8], version: u64) -> Result<(), StoreError> {
        let key: Arc<[u8]> = key.into();
        self.call(move |shared| {
            let key = Arc::clone(&key);
            async move { shared.backend.record_version(&key, version).await }
        })
        .await
    }

    fn is_scanned_in_order(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn tail(&self) -> watch::Receiver<Tail> {
        self.shared.tail.subscribe()
    }

    fn take_redriven(&self) -> Redriven {
        let redriven: VecDeque<u64> = std::mem::take(&mut *self.redriven());
        Redriven::Sequences(redriven.into())
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let stats = self.call(move |shared| async move { shared.backend.stats().await });
        let mut stats = stats.await?;
        // The rows of ids and versions have about one size.
        stats.live_bytes =
            stats.waiting_bytes + stats.letters_bytes + 48 * stats.known + 40 * stats.versions;
        Ok(stats)
    }

    /// Waits for the calls in progress. The connections stay with their pool.
    async fn close(&self) -> Result<(), StoreError> {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.calls.close();
        self.shared.calls.wait().await;
        Ok(())
    }
}
