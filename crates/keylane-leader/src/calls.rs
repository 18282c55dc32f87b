//! The calls of a candidate to its store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use keylane_leases::Lease;
use keylane_leases::error::{AcquireError, StoreError};

use crate::career::Term;
use crate::elections::Elections;
use crate::machine::{Call, Sight, Succession};
use crate::settings::Lost;
use crate::store::{CandidateId, Election, Entry, History, Recorded, Stage, TermRecord};
use crate::watching::{leader_of, within};

/// The answer to a call.
pub(crate) enum Answer {
    Looked(Result<Election, StoreError>),
    Changed(Result<(), StoreError>),
    /// With the history of the store before the grant.
    Acquired(Result<(Arc<Lease>, History), AcquireError>),
    Began(Result<(Succession, History), StoreError>),
    Marked(Result<(), StoreError>),
    /// Released, or withdrawn.
    Done(Result<(), StoreError>),
}

/// What the calls of a candidate have in common.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) elections: Elections,
    pub(crate) key: Bytes,
    pub(crate) entry: Entry,
    pub(crate) ttl: Duration,
    pub(crate) lost: Lost,
    /// For how long the candidate is entered.
    pub(crate) entered_for: Duration,
}

/// What a candidate holds.
pub(crate) enum Holding {
    Nothing,
    /// The lease of a term that is not recorded yet.
    Lease(Arc<Lease>, History),
    Term(Term),
}

impl Caller {
    /// Begins a call.
    pub(crate) fn begin(
        &self,
        call: &Call,
        seen: Option<&Election>,
        holding: &Holding,
    ) -> BoxFuture<'static, Answer> {
        let caller = self.clone();
        match call {
            Call::Look => {
                // It may ask for the lease next.
                let is_next = |seen: &Election| seen.next.as_ref() == Some(&self.entry.id);
                let asks = seen.is_none_or(is_next);
                Box::pin(async move { Answer::Looked(caller.look(asks).await) })
            }
            Call::Watch => {
                let seen = seen.cloned();
                Box::pin(async move { Answer::Changed(caller.watch(seen).await) })
            }
            Call::Acquire => Box::pin(async move { Answer::Acquired(caller.acquire().await) }),
            Call::Begin => match holding.record(&self.entry.id, Stage::Began, None) {
                Some(term) => Box::pin(async move { Answer::Began(caller.start(term).await) }),
                None => Box::pin(std::future::pending()),
            },
            Call::Mark(chosen) => {
                let term = holding.record(&self.entry.id, Stage::Leaving, chosen.as_ref());
                Box::pin(async move { Answer::Marked(caller.record(term).await) })
            }
            Call::Release { is_orderly, chosen } => {
                let ended = holding.record(&self.entry.id, Stage::Ended, chosen.as_ref());
                let ended = ended.filter(|_| *is_orderly);
                let lease = holding.lease().cloned();
                if let Some(lease) = &lease {
                    // Before the record of the end, with which the store may free the lease.
                    lease.give_up();
                }
                Box::pin(async move { Answer::Done(caller.release(ended, lease).await) })
            }
            Call::Withdraw => Box::pin(async move {
                let store = caller.elections.store();
                Answer::Done(within(store.withdraw(&caller.key, &caller.entry.id)).await)
            }),
        }
    }

    /// Enters the candidate. One that may ask for the lease next also reads the history of the
    /// store: a term that is granted in another history than the known one is given back, and then
    /// another candidate may be faster.
    async fn look(&self, asks: bool) -> Result<Election, StoreError> {
        let store = self.elections.store();
        let enters = within(store.enter(&self.key, &self.entry, self.entered_for));
        if !asks {
            return enters.await;
        }
        let (seen, history) = tokio::join!(enters, within(store.history()));
        if let Ok(history) = history {
            self.elections.saw(history);
        }
        seen
    }

    async fn watch(&self, seen: Option<Election>) -> Result<(), StoreError> {
        let store = self.elections.store();
        match seen {
            Some(seen) => store.changed(&self.key, Some(&self.entry.id), &seen).await,
            None => Ok(()),
        }
    }

    async fn acquire(&self) -> Result<(Arc<Lease>, History), AcquireError> {
        // Before the lease: a store that changes its history in between is noticed.
        let known = self.elections.history().borrow().clone();
        let history = match known {
            Some(history) => history,
            None => within(self.elections.store().history()).await?,
        };
        let leases = self.elections.leases();
        let lease = leases.try_acquire(self.key.clone(), self.ttl).await?;
        Ok((Arc::new(lease), history))
    }

    /// Records the beginning of a term, and reads the history after the grant.
    async fn start(&self, term: TermRecord) -> Result<(Succession, History), StoreError> {
        let store = self.elections.store();
        let records = within(store.record(&self.key, &term));
        match self.lost {
            // Nothing depends on the record before it, and what this leader writes is compared with
            // its term by the target: both calls may go at once.
            Lost::Fenced => {
                let (recorded, history) = tokio::join!(records, within(store.history()));
                Ok((succession(recorded?)?, history?))
            }
            // Whether it must wait depends on the record that was there. That counts only if it is
            // of the history of the grant: so the history is read after it.
            Lost::Wait(_) => {
                let succession = succession(records.await?)?;
                Ok((succession, within(store.history()).await?))
            }
        }
    }

    /// Records the end before the release: the next leader must see it.
    async fn release(
        &self,
        ended: Option<TermRecord>,
        lease: Option<Arc<Lease>>,
    ) -> Result<(), StoreError> {
        let recorded = self.record(ended).await;
        if let Some(lease) = lease {
            lease.release().await;
        }
        recorded
    }

    async fn record(&self, term: Option<TermRecord>) -> Result<(), StoreError> {
        match term {
            Some(term) => {
                let store = self.elections.store();
                within(store.record(&self.key, &term)).await.map(drop)
            }
            None => Ok(()),
        }
    }
}

impl Holding {
    pub(crate) fn lease(&self) -> Option<&Arc<Lease>> {
        match self {
            Self::Nothing => None,
            Self::Lease(lease, _) => Some(lease),
            Self::Term(term) => Some(term.lease()),
        }
    }

    pub(crate) fn term(&self) -> Option<&Term> {
        match self {
            Self::Term(term) => Some(term),
            _ => None,
        }
    }

    fn record(
        &self,
        leader: &CandidateId,
        stage: Stage,
        chosen: Option<&CandidateId>,
    ) -> Option<TermRecord> {
        self.lease().map(|lease| TermRecord {
            token: lease.token(),
            leader: leader.clone(),
            stage,
            chosen: chosen.cloned(),
        })
    }
}

/// Returns how the term before this one has ended, by the record that was there.
fn succession(recorded: Recorded) -> Result<Succession, StoreError> {
    match recorded {
        Recorded::Refused => Err(StoreError::new("a later term is recorded")),
        Recorded::Written(None) => Ok(Succession::Orderly),
        Recorded::Written(Some(was)) if was.stage == Stage::Ended => Ok(Succession::Orderly),
        // Also if it is the record of this term, from a call whose answer was lost: what was there
        // before is not known.
        Recorded::Written(Some(_)) => Ok(Succession::Lost),
    }
}

/// Returns what matters to a candidate in an election.
pub(crate) fn sight_of(seen: &Election, candidate: &CandidateId) -> Sight {
    Sight {
        is_next: seen.next.as_ref() == Some(candidate),
        held_for: seen.holder.as_ref().map(|holder| holder.remaining),
        is_leaving: leader_of(seen).is_some_and(|leader| leader.is_leaving),
    }
}
