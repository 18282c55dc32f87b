//! Notes attempts before they start, where a crash must not hide them.
//!
//! The first attempt at an entry that was never handed over before needs no note: if the process
//! dies with it, the entry is pending, and the next owner of the stream notes each attempt at it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use keylane_connector::{FailedAttempts, Notes, lock};
use keylane_leases::Lease;
use keylane_leases::table::ends_at;
use keylane_source::{Generation, Hold, Outcome, StartGuard, StartLater};
use tokio::time::Instant;

use super::id::EntryId;
use super::position::StreamPosition;
use super::settle::StreamOutbox;

#[derive(Debug, Default)]
pub(super) struct Starts {
    /// The time to live of the leases.
    ttl: Duration,
    notes: Notes<StreamPosition>,
    owners: Mutex<Owners>,
    /// Of the entries whose generation ended with a noted attempt, or that the server has yet to
    /// know as settled, by the number of their stream.
    failed: FailedAttempts<(u32, EntryId)>,
}

#[derive(Debug, Default)]
struct Owners {
    /// The owners of the current generations.
    here: HashMap<Generation, Owner>,
    /// The leases of past generations. The same lease may go on under another generation.
    past: BTreeMap<Generation, Weak<Lease>>,
}

/// With this many, the oldest generations are forgotten.
const MOST_PAST: usize = 1_024;

/// The part of a stream's owner that the guard needs.
#[derive(Debug)]
struct Owner {
    teller: Arc<StreamOutbox>,
    lease: Arc<Lease>,
}

impl Starts {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            ..Self::default()
        }
    }

    pub(super) fn begin(
        &self,
        generation: Generation,
        teller: &Arc<StreamOutbox>,
        lease: &Arc<Lease>,
    ) {
        let owner = Owner {
            teller: Arc::clone(teller),
            lease: Arc::clone(lease),
        };
        lock(&self.owners).here.insert(generation, owner);
    }

    /// Ends a generation: none of its attempts starts from now on.
    pub(super) fn end(&self, generation: Generation) {
        lock(&self.owners).end(generation);
        let ended = self.notes.extract(|of| of.generation == generation);
        for (of, attempts) in ended {
            self.failed.lose((of.stream, of.id), attempts);
        }
    }

    /// Returns how many of the attempts that the server knows count for an entry.
    pub(super) fn count(&self, stream: u32, id: EntryId, noted: u32) -> u32 {
        self.failed.count(&(stream, id), noted)
    }

    /// Records that the server knows the attempts at these entries.
    pub(super) fn told(&self, stream: u32, ids: impl Iterator<Item = EntryId>) {
        self.failed.remove(ids.map(|id| (stream, id)));
    }

    /// Records that the server has noted these attempts.
    pub(super) fn note(&self, notes: &[(StreamPosition, u32)]) {
        self.notes.confirm(notes);
    }
}

impl StartGuard<StreamPosition> for Starts {
    fn starts(&self, _: u32, position: &StreamPosition, attempt: u32) -> Result<(), StartLater> {
        let teller = {
            let owners = lock(&self.owners);
            let owner = owners.here.get(&position.generation);
            let owner = owner.ok_or("the stream is no longer owned here")?;
            // After a pause of the process, the news of the loss may come later.
            owner.lease.check()?;
            if attempt <= position.free {
                return Ok(());
            }
            Arc::clone(&owner.teller)
        };
        let note = || teller.note(*position, attempt);
        self.notes.ask(position, attempt, note)
    }

    fn settles(&self, _: u32, position: &StreamPosition, outcome: Outcome) {
        if let Some(attempts) = self.notes.remove(position) {
            let of = (position.stream, position.id);
            self.failed.settle(of, attempts, outcome);
        }
    }

    fn holds(&self, position: &StreamPosition) -> bool {
        lock(&self.owners).holds(position.generation)
    }

    fn hold(&self) -> Option<Hold> {
        let until = lock(&self.owners).held_until()?;
        let lasts = ends_at(until, self.ttl) - until;
        Some(Hold::new(lasts, until))
    }
}

impl Owners {
    fn end(&mut self, generation: Generation) {
        let Some(owner) = self.here.remove(&generation) else {
            return;
        };
        self.past.retain(|_, lease| lease.strong_count() > 0);
        if self.past.len() >= MOST_PAST {
            self.past.pop_first();
        }
        self.past.insert(generation, Arc::downgrade(&owner.lease));
    }

    /// When the first lease ends, of those that are held.
    fn held_until(&self) -> Option<Instant> {
        let ends = self.here.values().map(|owner| owner.lease.held_until());
        ends.flatten().min()
    }

    fn holds(&self, generation: Generation) -> bool {
        let here = self.here.get(&generation);
        let lease = match here {
            Some(owner) => Some(Arc::clone(&owner.lease)),
            None => self.past.get(&generation).and_then(Weak::upgrade),
        };
        lease.is_some_and(|lease| lease.check().is_ok())
    }
}

#[cfg(test)]
mod tests {
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

    async fn begun() -> (Starts, Arc<StreamOutbox>, Leases) {
        let leases = Leases::open(Arc::new(MemoryStore::new())).unwrap();
        let lease = leases.acquire("stream", Duration::from_secs(10)).await;
        let (starts, teller) = (Starts::default(), Arc::new(StreamOutbox::default()));
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
        starts.note(&[(position, 2)]);
        assert!(starts.starts(0, &position, 2).is_ok());
        starts.settles(0, &position, Outcome::Done);
        assert!(starts.notes.remove(&position).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_stream_that_ends_first_is_held_for_as_long() {
        let ttl = Duration::from_secs(10);
        let (starts, teller) = (Starts::new(ttl), Arc::new(StreamOutbox::default()));
        assert_eq!(starts.hold(), None);
        let leases = Leases::open(Arc::new(MemoryStore::new())).unwrap();
        let sent = Instant::now();
        for (number, stream) in ["first", "second"].into_iter().enumerate() {
            let lease = leases.acquire(stream, ttl).await.unwrap();
            starts.begin(Generation(number as u64), &teller, &Arc::new(lease));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let hold = starts.hold().unwrap();
        assert_eq!(hold.extended_at(), Some(sent));
        assert_eq!(hold.lasts, ttl * 9 / 10);
        starts.end(Generation(0));
        let later = starts.hold().unwrap().until - hold.until;
        assert_eq!(later, Duration::from_secs(1));
        leases.close().await;
        assert_eq!(starts.hold(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_starts_of_a_generation_that_is_over() {
        let (starts, teller, _leases) = begun().await;
        starts.end(Generation(7));
        assert!(starts.starts(0, &position(0), 1).is_err());
        assert!(starts.starts(0, &position(1), 1).is_err());
        assert!(teller.take().notes.is_empty());
    }

    /// Its process lives, so it was no crash.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_was_noted_and_has_not_failed_does_not_count() {
        let (starts, _teller, _leases) = begun().await;
        let position = position(0);
        assert!(starts.starts(0, &position, 3).is_err());
        starts.note(&[(position, 3)]);
        // The connection breaks before it starts, and the entry comes again.
        starts.end(Generation(7));
        assert_eq!(starts.count(0, position.id, 3), 2);
        // Another process has noted one more since.
        assert_eq!(starts.count(0, position.id, 4), 4);
        starts.told(0, [position.id].into_iter());
        assert_eq!(starts.count(0, position.id, 3), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_starts_when_the_lease_is_over() {
        let (starts, _teller, leases) = begun().await;
        leases.close().await;
        assert!(starts.starts(0, &position(1), 1).is_err());
    }
}
