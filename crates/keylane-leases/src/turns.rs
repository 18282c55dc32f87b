//! Callers of one process that wait for the same key: one of them asks the store, and the others
//! wait behind it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The keys that callers wait for, each with a gate that lets one of them ask.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Bytes, Arc<Semaphore>>>);

/// The place of a caller among those that wait for a key. The next one comes when it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    key: Bytes,
    /// Taken when it is dropped.
    gate: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits until it is the turn of this caller. Returns whether others came before it.
    pub(crate) async fn turn(&self, key: &Bytes) -> (Turn<'_>, bool) {
        let gate = {
            let mut gates = self.lock();
            let gate = gates.entry(key.clone());
            Arc::clone(gate.or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        let permit = Arc::clone(&gate).try_acquire_owned().ok();
        let mut turn = Turn {
            turns: self,
            key: key.clone(),
            gate: Some(Arc::clone(&gate)),
            permit,
        };
        let waits = turn.permit.is_none();
        if waits {
            turn.permit = gate.acquire_owned().await.ok();
        }
        (turn, waits)
    }

    /// Keys that callers wait for.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Bytes, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut gates = self.turns.lock();
        (self.permit, self.gate) = (None, None);
        // All clones are made, and dropped, under this lock.
        if let Some(gate) = gates.get(&self.key)
            && Arc::strong_count(gate) == 1
        {
            gates.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn one_has_its_turn_at_a_time_and_nothing_stays() {
        let (turns, key) = (Turns::default(), Bytes::from_static(b"key"));
        let (first, waited) = turns.turn(&key).now_or_never().unwrap();
        assert!(!waited);
        let mut second = Box::pin(turns.turn(&key));
        let mut third = Box::pin(turns.turn(&key));
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        drop(second);
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        let (third, waited) = third.now_or_never().unwrap();
        assert!(waited);
        drop(third);
        assert!(turns.lock().is_empty());
    }
}
