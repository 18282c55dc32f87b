//! Elections within one process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use keylane_leases::error::StoreError;
use keylane_leases::store::{Answer, Claim, Wish};
use keylane_leases::{LeaseStore, MemoryStore, Owner};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::store::{
    CandidateId, Election, ElectionStore, Entry, History, Holder, Recorded, Stage, TermRecord,
    after, matters, replaces,
};

/// Keeps elections in memory: for tests, and for a service that runs in one process so far.
#[derive(Debug, Default)]
pub struct MemoryElections {
    leases: MemoryStore,
    elections: Mutex<HashMap<Bytes, Queue>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order in which they entered.
    entries: Vec<(Entry, Instant)>,
    term: Option<TermRecord>,
}

impl MemoryElections {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<R>(&self, key: &Bytes, call: impl FnOnce(&mut Queue, Instant) -> R) -> R {
        let mut elections = self
            .elections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        call(elections.entry(key.clone()).or_default(), Instant::now())
    }

    fn seen(&self, key: &Bytes, queue: &mut Queue, now: Instant) -> Election {
        queue.entries.retain(|(_, until)| *until > now);
        Election {
            holder: self
                .leases
                .held(key)
                .map(|(token, remaining)| Holder { token, remaining }),
            term: queue.term.clone(),
            next: queue.next(),
            revision: 0,
        }
    }
}

impl Queue {
    fn next(&self) -> Option<CandidateId> {
        let chosen = self.term.as_ref().and_then(|term| term.chosen.as_ref());
        let entries = || self.entries.iter().map(|(entry, _)| entry);
        let chosen = entries().find(|entry| Some(&entry.id) == chosen);
        // The first of those that are equal.
        let next = chosen.or_else(|| entries().min_by_key(|entry| entry.rank));
        next.map(|entry| entry.id.clone())
    }
}

#[async_trait]
impl LeaseStore for MemoryElections {
    async fn acquire(&self, owner: &Owner, wishes: &[Wish]) -> Result<Vec<Answer>, StoreError> {
        self.leases.acquire(owner, wishes).await
    }

    async fn renew(&self, owner: &Owner, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        self.leases.renew(owner, claims).await
    }

    async fn release(&self, owner: &Owner, claims: &[Claim]) -> Result<(), StoreError> {
        let released = self.leases.release(owner, claims).await;
        self.changed.notify_waiters();
        released
    }

    async fn held_by(
        &self,
        key: &Bytes,
    ) -> Result<Option<keylane_leases::store::Holder>, StoreError> {
        self.leases.held_by(key).await
    }
}

#[async_trait]
impl ElectionStore for MemoryElections {
    async fn enter(
        &self,
        key: &Bytes,
        entry: &Entry,
        ttl: Duration,
    ) -> Result<Election, StoreError> {
        Ok(self.with(key, |queue, now| {
            let mut entries = queue.entries.iter_mut();
            match entries.find(|(known, until)| known.id == entry.id && *until > now) {
                Some((_, until)) => *until = now + ttl,
                None => queue.entries.push((entry.clone(), now + ttl)),
            }
            self.seen(key, queue, now)
        }))
    }

    async fn look(&self, key: &Bytes) -> Result<Election, StoreError> {
        Ok(self.with(key, |queue, now| self.seen(key, queue, now)))
    }

    async fn withdraw(&self, key: &Bytes, candidate: &CandidateId) -> Result<(), StoreError> {
        self.with(key, |queue, _| {
            queue.entries.retain(|(entry, _)| entry.id != *candidate);
        });
        self.changed.notify_waiters();
        Ok(())
    }

    async fn record(&self, key: &Bytes, term: &TermRecord) -> Result<Recorded, StoreError> {
        let recorded = self.with(key, |queue, _| {
            let recorded = after(queue.term.as_ref(), term);
            if replaces(queue.term.as_ref(), term) {
                queue.entries.retain(|(entry, _)| entry.id != term.leader);
                queue.term = Some(term.clone());
            }
            recorded
        });
        let holder = self.leases.holder(key);
        let holder = holder.filter(|(_, token)| *token == term.token && term.stage == Stage::Ended);
        if let Some((owner, token)) = holder
            && recorded != Recorded::Refused
        {
            let claim = Claim::new(key.clone(), token, Duration::ZERO);
            self.leases.release(&owner, &[claim]).await?;
        }
        self.changed.notify_waiters();
        Ok(recorded)
    }

    async fn history(&self) -> Result<History, StoreError> {
        Ok(History::new("memory"))
    }

    async fn changed(
        &self,
        key: &Bytes,
        candidate: Option<&CandidateId>,
        seen: &Election,
    ) -> Result<(), StoreError> {
        let changed = self.changed.notified();
        let now = self.look(key).await?;
        if !matters(candidate, seen, &now) {
            tokio::select! {
                () = changed => {}
                // A lease that runs out wakes no waiter.
                () = sleep(Duration::from_millis(500)) => {}
            }
        }
        Ok(())
    }
}
