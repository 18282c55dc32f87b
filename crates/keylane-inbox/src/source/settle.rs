//! Writes of done-marks to the store, which are not awaited one by one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::StoreError;
use crate::store::{InboxStore, Settled};

/// The most writes in progress.
const AT_ONCE: usize = 32;

/// How long to wait before a failed write is repeated.
const PAUSE: Duration = Duration::from_millis(250);

/// A write that fails is logged at first, and then once in so many times: every ten seconds.
const LOGGED_EVERY: u32 = 40;

/// Writes in progress, the oldest first.
#[derive(Debug, Default)]
pub(super) struct DoneWrites {
    writes: VecDeque<JoinHandle<Result<(), StoreError>>>,
    /// Set while the files of the store are not in their place. That may last, so the source does
    /// not wait: it fails, hands over nothing meanwhile, and reports the reason.
    displaced: watch::Sender<Option<StoreError>>,
}

impl DoneWrites {
    /// Removes these messages. Waits only if too many writes are in progress.
    pub(super) async fn write(
        &mut self,
        store: &Arc<dyn InboxStore>,
        done: Vec<Settled>,
    ) -> Result<(), StoreError> {
        let (store, displaced) = (Arc::clone(store), self.displaced.clone());
        self.writes.push_back(tokio::spawn(async move {
            let mut failures = 0_u32;
            loop {
                match store.settle(done.clone()).await {
                    Ok(()) => {
                        displaced.send_if_modified(|displaced| displaced.take().is_some());
                        return Ok(());
                    }
                    Err(StoreError::Closed) => return Err(StoreError::Closed),
                    Err(error) => {
                        // They are done even if the disk fails: the write is repeated until it
                        // succeeds, because they would run again otherwise.
                        if failures.is_multiple_of(LOGGED_EVERY) {
                            tracing::error!(
                                target: "keylane",
                                %error,
                                "settled messages could not be written, will retry"
                            );
                        }
                        failures = failures.wrapping_add(1);
                        if matches!(error, StoreError::Displaced { .. }) {
                            displaced.send_replace(Some(error));
                        }
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }));
        while self.writes.len() > AT_ONCE {
            self.wait_for_oldest().await?;
        }
        Ok(())
    }

    /// Waits until a write fails because the files are not in their place.
    pub(super) async fn displaced(&self) -> StoreError {
        displaced(self.displaced.subscribe()).await
    }

    /// Waits until everything is written. After an error the remaining writes stay in the list.
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
        let written = tokio::select! {
            biased;
            // By reference: if this future is dropped, the write stays in the list.
            written = &mut *oldest => written,
            error = displaced(self.displaced.subscribe()) => return Err(error),
        };
        self.writes.pop_front();
        // This task ends early only with its runtime.
        written.unwrap_or(Err(StoreError::Closed))
    }
}

async fn displaced(mut displaced: watch::Receiver<Option<StoreError>>) -> StoreError {
    let found = displaced.wait_for(Option::is_some).await;
    match found.map(|error| error.clone()) {
        Ok(Some(error)) => error,
        // Its sender lives as long as the writes.
        _ => std::future::pending().await,
    }
}
