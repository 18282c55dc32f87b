//! Writes to the store that are not awaited one by one: what is done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::error::StoreError;
use crate::store::{InboxStore, Settled};

/// Most writes under way.
const AT_ONCE: usize = 32;

/// How long to wait before a write is said again that was not committed.
const PAUSE: Duration = Duration::from_millis(250);

/// Writes under way, the oldest first.
#[derive(Debug, Default)]
pub(super) struct DoneWrites {
    writes: VecDeque<JoinHandle<Result<(), StoreError>>>,
}

impl DoneWrites {
    /// Has these removed. Waits only if too many writes are under way.
    pub(super) async fn write(
        &mut self,
        store: &Arc<dyn InboxStore>,
        done: Vec<Settled>,
    ) -> Result<(), StoreError> {
        while self.writes.len() >= AT_ONCE {
            self.wait_for_oldest().await?;
        }
        let store = Arc::clone(store);
        self.writes.push_back(tokio::spawn(async move {
            loop {
                match store.settle(done.clone()).await {
                    Ok(()) => return Ok(()),
                    Err(StoreError::Closed) => return Err(StoreError::Closed),
                    Err(error) => {
                        // They are done, whatever the disk says: it is said again until it is
                        // written, or else they would run again.
                        tracing::error!(target: "keylane", %error, "what is done is not written");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }));
        Ok(())
    }

    /// Waits until everything is written.
    pub(super) async fn wait(&mut self) -> Result<(), StoreError> {
        while !self.writes.is_empty() {
            self.wait_for_oldest().await?;
        }
        Ok(())
    }

    async fn wait_for_oldest(&mut self) -> Result<(), StoreError> {
        let Some(oldest) = self.writes.front_mut() else {
            return Ok(());
        };
        // By reference: if this future is dropped, the write is still among them.
        let written = oldest.await;
        self.writes.pop_front();
        // A task of ours ends early only with its runtime.
        written.unwrap_or(Err(StoreError::Closed))
    }
}
