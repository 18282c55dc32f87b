//! The state that the holders of leases share with the task that renews them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::counts::{HeldLease, LeaseCounts};
use crate::error::{AcquireError, LeaseLost, StoreError};
use crate::store::{Answer, Claim, Owner, Token, Wish};
use crate::table::{Kept, Table, pause};
use crate::turns::Turns;
use crate::validity::{ValiditySender, ValidityWatch};

pub(crate) struct Shared {
    pub(crate) owner: Owner,
    /// One place for each lease that is held or requested.
    pub(crate) places: Arc<Semaphore>,
    /// The callers that wait for keys.
    pub(crate) turns: Turns,
    /// The most releases that are to be tried again.
    most: usize,
    /// Wakes the task: there is something new in the state.
    pub(crate) wake: Notify,
    /// How many leases were lost: each counts after its holder was notified.
    losses: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    table: Table,
    /// The keys of the table, each with the state that its holder sees.
    terms: HashMap<Bytes, Entry>,
    asked: VecDeque<Asked>,
    /// Leases that were in the table, and take no place any more. The store takes them in batches.
    /// They are bounded because the same store granted each of them before.
    released: VecDeque<Released>,
    /// Releases that have failed, by the time of their next try.
    again: BTreeMap<Instant, Vec<Released>>,
    counts: LeaseCounts,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// No handle is left, but there may be leases.
    Left,
    Closed,
}

struct Entry {
    validity: ValiditySender,
    _place: OwnedSemaphorePermit,
}

/// A lease that a caller waits for.
pub(crate) struct Asked {
    pub(crate) wish: Wish,
    answer: oneshot::Sender<Result<Grant, AcquireError>>,
}

/// A lease to release at the store, and the caller that waits for it, if there is one.
pub(crate) struct Released {
    pub(crate) claim: Claim,
    told: Option<oneshot::Sender<()>>,
    /// When it has run out at the store.
    until: Instant,
    /// How often the release has failed.
    failed: u32,
}

/// A lease that was granted. It is released when it is dropped.
pub(crate) struct Grant {
    pub(crate) key: Bytes,
    pub(crate) token: Token,
    pub(crate) validity: ValidityWatch,
    shared: Arc<Shared>,
}

/// The reason why there is no lease.
pub(crate) enum Refusal {
    /// This process has it, or asks for it: the store is not asked.
    Here {
        freed: ValidityWatch,
        remaining: Duration,
    },
    Error(AcquireError),
}

impl Refusal {
    /// Returns whether the key may be free later.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(
            self,
            Self::Here { .. } | Self::Error(AcquireError::Taken { .. })
        )
    }
}

impl Shared {
    pub(crate) fn new(owner: Owner, most: usize) -> Self {
        Self {
            owner,
            places: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            turns: Turns::default(),
            most,
            wake: Notify::new(),
            losses: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Asks the store for a lease.
    pub(crate) fn ask(
        &self,
        wish: Wish,
        place: OwnedSemaphorePermit,
    ) -> Result<oneshot::Receiver<Result<Grant, AcquireError>>, Refusal> {
        let mut state = self.state();
        if state.stage == Stage::Closed {
            return Err(Refusal::Error(AcquireError::Closed));
        }
        if let Some(entry) = state.terms.get(&wish.key) {
            let until = state.table.held_until(&wish.key);
            let remaining = until.map(|at| at.saturating_duration_since(Instant::now()));
            return Err(Refusal::Here {
                freed: entry.validity.watch(),
                remaining: remaining.unwrap_or(wish.ttl),
            });
        }
        let is_new = state.table.ask(&wish.key);
        debug_assert!(is_new, "the table has the keys of the terms");
        let entry = Entry {
            validity: ValiditySender::new(),
            _place: place,
        };
        state.terms.insert(wish.key.clone(), entry);
        let (answer, answered) = oneshot::channel();
        state.asked.push_back(Asked { wish, answer });
        drop(state);
        self.wake.notify_one();
        Ok(answered)
    }

    /// Ends a lease for its holder. It is renewed until it is released.
    fn give_up(&self, key: &Bytes, token: Token) {
        let state = self.state();
        if state.table.is_held(key, token)
            && let Some(entry) = state.terms.get(key)
        {
            entry.validity.lose(LeaseLost::Released);
        }
    }

    /// Releases a lease. Returns `None` if it is not held.
    fn release(&self, key: &Bytes, token: Token) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state();
        let claim = state.table.release(key, token)?;
        let entry = state.terms.remove(key);
        if let Some(entry) = &entry {
            entry.validity.lose(LeaseLost::Released);
        }
        let (told, receiver) = oneshot::channel();
        state.tell_store(claim, Some(told));
        drop(state);
        // Its waiters wake up and ask again: without the lock.
        drop(entry);
        self.wake.notify_one();
        Some(receiver)
    }

    /// Records that no handle is left.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        if state.stage == Stage::Open {
            state.stage = Stage::Left;
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Gives up all leases, and grants no more.
    pub(crate) fn close(&self) {
        self.places.close();
        let mut state = self.state();
        state.stage = Stage::Closed;
        // First the holders, and then the store: the task may be about to take the releases.
        let terms = std::mem::take(&mut state.terms);
        for entry in terms.values() {
            self.tell_loss(entry, LeaseLost::Closed);
        }
        for claim in state.table.release_all() {
            // No caller waits for a single one.
            state.tell_store(claim, None);
        }
        // The last try.
        let again = std::mem::take(&mut state.again);
        state.released.extend(again.into_values().flatten());
        let asked = std::mem::take(&mut state.asked);
        drop(state);
        drop(terms);
        for asked in asked {
            let _ = asked.answer.send(Err(AcquireError::Closed));
        }
        self.wake.notify_one();
    }

    /// Returns whether leases are granted no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().stage == Stage::Closed
    }

    pub(crate) fn held(&self, most: usize, now: Instant) -> Vec<HeldLease> {
        self.state().table.first_to_end(most, now)
    }

    /// Returns what is counted.
    pub(crate) fn counts(&self) -> LeaseCounts {
        let state = self.state();
        LeaseCounts {
            held: state.terms.len() as u64,
            room: self.places.available_permits() as u64,
            ..state.counts
        }
    }

    /// Returns whether there is no work left, now or later, except calls in progress.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state();
        let is_idle = state.asked.is_empty() && state.released.is_empty() && state.again.is_empty();
        match state.stage {
            Stage::Open => false,
            Stage::Left => is_idle && state.table.is_empty(),
            Stage::Closed => is_idle,
        }
    }

    /// Returns when the next work is due. Releases count only if a call may release now: one that
    /// is due and cannot begin would be due for ever.
    pub(crate) fn next(&self, may_release: bool) -> Option<Instant> {
        let state = self.state();
        let again = state.again.keys().next().filter(|_| may_release).copied();
        state.table.next().into_iter().chain(again).min()
    }

    pub(crate) fn take_asked(&self, most: usize) -> Vec<Asked> {
        let mut state = self.state();
        let most = most.min(state.asked.len());
        state.asked.drain(..most).collect()
    }

    pub(crate) fn take_released(&self, most: usize) -> Vec<Released> {
        let mut state = self.state();
        let now = Instant::now();
        while let Some(first) = state
            .again
            .first_entry()
            .filter(|first| *first.key() <= now)
        {
            let again = first.remove();
            state.released.extend(again);
        }
        let most = most.min(state.released.len());
        state.released.drain(..most).collect()
    }

    /// Records that the store has not released these leases, or not answered. Each is tried again
    /// while it would be held there.
    pub(crate) fn not_released(&self, released: Vec<Released>) {
        let now = Instant::now();
        let mut state = self.state();
        state.counts.failed_releases += 1;
        let mut again: usize = state.again.values().map(Vec::len).sum();
        for mut one in released {
            one.tell();
            let at = now + pause(one.claim.ttl) * 2_u32.saturating_pow(one.failed.min(16));
            one.failed += 1;
            if state.stage != Stage::Closed && at < one.until && again < self.most {
                again += 1;
                state.again.entry(at).or_default().push(one);
            }
        }
    }

    /// Reports leases that have run out: a holder may know it, and ask again, before the task does.
    pub(crate) fn expire(&self) {
        // Without any of those that are due for renewal.
        let _ = self.take_due(Instant::now(), 0);
    }

    /// Reports leases that have run out. Returns those that are due for renewal.
    pub(crate) fn take_due(&self, now: Instant, most: usize) -> Vec<Claim> {
        let mut state = self.state();
        let due = state.table.due(now, most);
        for (key, _) in &due.ran_out {
            self.lose(&mut state, key, LeaseLost::RanOut);
        }
        due.renew
    }

    /// Takes the answer, or the failure, of a call that was sent at that time.
    pub(crate) fn answered(
        self: &Arc<Self>,
        asked: Vec<Asked>,
        answers: Result<Vec<Answer>, StoreError>,
        sent: Instant,
    ) {
        let now = Instant::now();
        let mut state = self.state();
        state.counts.failed_acquires += u64::from(answers.is_err());
        let mut replies = Vec::with_capacity(asked.len());
        for (at, Asked { wish, answer }) in asked.into_iter().enumerate() {
            let reply = match &answers {
                Ok(answers) => self.settle_answer(&mut state, &wish, answers[at], sent, now),
                Err(error) => Err(AcquireError::Store(error.clone())),
            };
            if reply.is_err() {
                state.table.not_granted(&wish.key);
                state.forget(&wish.key);
            }
            replies.push((answer, reply));
        }
        drop(state);
        for (answer, reply) in replies {
            // A lease whose caller is gone is dropped here, and so released: without the lock.
            let _ = answer.send(reply);
        }
    }

    fn settle_answer(
        self: &Arc<Self>,
        state: &mut State,
        wish: &Wish,
        answer: Answer,
        sent: Instant,
        now: Instant,
    ) -> Result<Grant, AcquireError> {
        let token = match answer {
            Answer::Taken { remaining } => {
                state.counts.taken += 1;
                return Err(AcquireError::Taken { remaining });
            }
            Answer::Granted(token) => token,
        };
        let kept = state.table.granted(&wish.key, token, wish.ttl, sent, now);
        if let Kept::Until(at) = kept
            && let Some(entry) = state.terms.get(&wish.key)
        {
            entry.validity.hold(at);
            let validity = entry.validity.watch();
            state.counts.granted += 1;
            return Ok(Grant {
                key: wish.key.clone(),
                token,
                validity,
                shared: Arc::clone(self),
            });
        }
        state.tell_store(Claim::new(wish.key.clone(), token, wish.ttl), None);
        match kept {
            Kept::RanOut => Err(StoreError::new("the lease was granted too late").into()),
            _ => Err(AcquireError::Closed),
        }
    }

    /// Takes the answer, or the failure, of a renewal that was sent at that time.
    pub(crate) fn renewed(
        &self,
        claims: &[Claim],
        answers: Result<Vec<bool>, StoreError>,
        sent: Instant,
    ) {
        let now = Instant::now();
        let mut state = self.state();
        state.counts.failed_renewals += u64::from(answers.is_err());
        for (at, Claim { key, token, .. }) in claims.iter().enumerate() {
            let Ok(answers) = &answers else {
                state.table.not_renewed(key, *token, now);
                continue;
            };
            match state.table.renewed(key, *token, answers[at], sent, now) {
                Kept::Until(at) => {
                    if let Some(entry) = state.terms.get(key) {
                        entry.validity.hold(at);
                    }
                }
                Kept::RanOut => self.lose(&mut state, key, LeaseLost::RanOut),
                Kept::TakenOver => self.lose(&mut state, key, LeaseLost::TakenOver),
                Kept::Gone => {}
            }
        }
    }

    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Records that a lease is not held any more, and notifies its holder.
    fn lose(&self, state: &mut State, key: &Bytes, why: LeaseLost) {
        if let Some(entry) = state.terms.remove(key) {
            match why {
                LeaseLost::TakenOver => state.counts.taken_over += 1,
                _ => state.counts.ran_out += 1,
            }
            self.tell_loss(&entry, why);
        }
    }

    fn tell_loss(&self, entry: &Entry, why: LeaseLost) {
        entry.validity.lose(why);
        self.losses.fetch_add(1, Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Queues the release of a lease that is not held any more.
    fn tell_store(&mut self, claim: Claim, told: Option<oneshot::Sender<()>>) {
        let until = Instant::now() + claim.ttl;
        self.released.push_back(Released {
            claim,
            told,
            until,
            failed: 0,
        });
    }

    fn forget(&mut self, key: &Bytes) {
        self.terms.remove(key);
    }
}

impl Grant {
    /// Ends the lease for its holder, and does not tell the store.
    pub(crate) fn give_up(&self) {
        self.shared.give_up(&self.key, self.token);
    }

    /// Releases the lease. Returns `None` if it is not held.
    pub(crate) fn release(&self) -> Option<oneshot::Receiver<()>> {
        self.shared.release(&self.key, self.token)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

impl Released {
    /// Returns whether an earlier try has failed.
    pub(crate) fn is_again(&self) -> bool {
        self.failed > 0
    }

    /// Tells the caller that the store has it, or could not be reached.
    pub(crate) fn tell(&mut self) {
        if let Some(told) = self.told.take() {
            // If the caller is gone, the lease is released all the same.
            let _ = told.send(());
        }
    }
}
