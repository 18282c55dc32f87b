//! Attempts are noted before they start, where a crash must not hide them.
//!
//! The first attempt at an entry that was never handed over before needs no note: if the process dies with
//! it, the entry is pending, and the owner that takes the stream over notes each attempt at it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane::error::BoxError;
use keylane::source::{Generation, Outcome, StartGuard};
use keylane_leases::Lease;

use super::position::StreamPosition;
use super::teller::Teller;

#[derive(Debug, Default)]
pub(super) struct Starts {
    attempts: Mutex<HashMap<StreamPosition, Attempt>>,
    /// How many there are in it: hardly ever any.
    count: AtomicUsize,
    /// Of the generations that are here.
    owners: Mutex<HashMap<Generation, Owner>>,
}

/// What is needed of the owner of a stream.
#[derive(Debug)]
struct Owner {
    teller: Arc<Teller>,
    lease: Arc<Lease>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    noted: u32,
    wanted: u32,
}

impl Starts {
    pub(super) fn begin(&self, generation: Generation, teller: &Arc<Teller>, lease: &Arc<Lease>) {
        let owner = Owner {
            teller: Arc::clone(teller),
            lease: Arc::clone(lease),
        };
        lock(&self.owners).insert(generation, owner);
    }

    /// Nothing of this generation starts any more.
    pub(super) fn end(&self, generation: Generation) {
        lock(&self.owners).remove(&generation);
        self.change(|attempts| attempts.retain(|of, _| of.generation != generation));
    }

    /// The server has these.
    pub(super) fn note(&self, position: &StreamPosition, attempt: u32) {
        if let Some(known) = lock(&self.attempts).get_mut(position) {
            known.noted = known.noted.max(attempt);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<StreamPosition, Attempt>) -> T) -> T {
        let mut attempts = lock(&self.attempts);
        let changed = change(&mut attempts);
        self.count.store(attempts.len(), Ordering::Relaxed);
        changed
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StartGuard<StreamPosition> for Starts {
    fn starts(&self, _: u32, position: &StreamPosition, attempt: u32) -> Result<(), BoxError> {
        let teller = {
            let owners = lock(&self.owners);
            let owner = owners.get(&position.generation);
            let owner = owner.ok_or("the stream is not owned here any more")?;
            // After a pause of the process, the news of the loss may come later.
            owner.lease.check()?;
            if attempt <= position.free {
                return Ok(());
            }
            Arc::clone(&owner.teller)
        };
        let is_wanted = self.change(|attempts| {
            let known = attempts.entry(*position).or_default();
            if known.noted >= attempt {
                return None;
            }
            let is_new = known.wanted < attempt;
            known.wanted = attempt;
            Some(is_new)
        });
        let Some(is_new) = is_wanted else {
            return Ok(());
        };
        if is_new {
            teller.note(*position, attempt);
        }
        Err("its start is being noted".into())
    }

    fn settles(&self, _: u32, position: &StreamPosition, _: Outcome) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.change(|attempts| attempts.remove(position));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keylane_leases::{Leases, MemoryStore};

    use super::*;
    use crate::stream::id::EntryId;

    fn position(free: u32) -> StreamPosition {
        StreamPosition {
            stream: 0,
            attempts: 0,
            free,
            generation: Generation(7),
            id: EntryId::new(1, 1),
        }
    }

    async fn begun() -> (Starts, Arc<Teller>, Leases) {
        let leases = Leases::open(Arc::new(MemoryStore::new())).unwrap();
        let lease = leases.acquire("stream", Duration::from_secs(10)).await;
        let (starts, teller) = (Starts::default(), Arc::new(Teller::default()));
        starts.begin(Generation(7), &teller, &Arc::new(lease.unwrap()));
        (starts, teller, leases)
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_starts_when_it_is_noted_and_is_wanted_once() {
        let (starts, teller, _leases) = begun().await;
        let position = position(1);
        assert!(starts.starts(0, &position, 1).is_ok());
        assert!(starts.starts(0, &position, 2).is_err());
        assert!(starts.starts(0, &position, 2).is_err());
        assert_eq!(teller.take().notes.len(), 1);
        starts.note(&position, 2);
        assert!(starts.starts(0, &position, 2).is_ok());
        starts.settles(0, &position, Outcome::Done);
        assert_eq!(starts.count.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_starts_of_a_generation_that_is_over() {
        let (starts, teller, _leases) = begun().await;
        starts.end(Generation(7));
        assert!(starts.starts(0, &position(0), 1).is_err());
        assert!(starts.starts(0, &position(1), 1).is_err());
        assert!(teller.take().notes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_starts_when_the_lease_is_over() {
        let (starts, _teller, leases) = begun().await;
        leases.close().await;
        assert!(starts.starts(0, &position(1), 1).is_err());
    }
}
