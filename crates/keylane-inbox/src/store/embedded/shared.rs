//! The state that the writer and the handles share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use keylane_disk::Watch;
use redb::{Database, ReadTransaction, ReadableDatabase};
use tokio::sync::watch;

use super::fault::{Fault, Wrapped, guarded};
use super::redriven::RedrivenLog;
use crate::error::StoreError;
use crate::store::Tail;

pub(super) struct Shared {
    /// The name of the file in errors.
    pub(super) place: String,
    pub(super) state: RwLock<State>,
    pub(super) tail: watch::Sender<Tail>,
    pub(super) redriven: Mutex<RedrivenLog>,
    pub(super) watch: std::sync::Arc<Watch>,
    pub(super) counts: Counts,
    /// Set after a failed read, which makes the database refuse everything. The writer clears it
    /// when no read of that database is in progress any more. The state's lock orders the two.
    pub(super) read_failed: AtomicBool,
}

pub(super) enum State {
    Open(Database),
    /// Why it could not be opened again after a failure.
    Broken(Fault),
    Closed,
}

/// Numbers for `stats`: the writer counts, any thread reads, and no decision depends on them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) commits: AtomicU64,
    pub(super) failed_commits: AtomicU64,
    pub(super) compactions: AtomicU64,
}

impl Counts {
    pub(super) fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Reads committed data. Blocks on the disk.
    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&ReadTransaction) -> Result<T, Wrapped>,
    ) -> Result<T, StoreError> {
        let state = self.state();
        let database = match &*state {
            State::Open(database) => database,
            State::Broken(fault) => return Err(fault.unread(&self.place)),
            State::Closed => return Err(StoreError::Closed),
        };
        let answer = guarded(|| {
            let transaction = database.begin_read()?;
            work(&transaction)
        });
        answer.map_err(|fault| {
            if matches!(fault, Fault::Io(_) | Fault::Refused(_)) {
                self.read_failed.store(true, Ordering::Relaxed);
            }
            fault.unread(&self.place)
        })
    }

    /// Returns whether a read of this database has failed.
    pub(super) fn read_failed(&self) -> bool {
        self.read_failed.load(Ordering::Relaxed)
    }

    /// Returns the database, for the life of the guard.
    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        // The panic has changed nothing: the state is replaced as a whole.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the state when no read is in progress. The old one is dropped outside of the lock.
    pub(super) fn replace(&self, state: State) -> State {
        let mut guard = self.state.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut guard, state)
    }

    pub(super) fn redriven(&self) -> MutexGuard<'_, RedrivenLog> {
        self.redriven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
