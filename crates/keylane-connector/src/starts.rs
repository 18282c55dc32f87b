//! Whether attempts may start, and go on.

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_source::{Generation, Hold, Outcome, StartGuard, StartLater};

use crate::changes::Changes;
use crate::failed::FailedAttempts;
use crate::lock::lock;
use crate::notes::Notes;
use crate::position::WorkerPosition;
use crate::session::Session;
use crate::system::System;

/// The starts of a system.
pub(crate) type StartsOf<S> = Starts<<S as System>::Id, <S as System>::Error>;

#[derive(Debug)]
pub(crate) struct Starts<I, E> {
    notes: Notes<I>,
    session: Mutex<Option<Arc<Session<I, E>>>>,
    /// How long the lease of the worker lasts, by this clock.
    lasts: Duration,
    /// Other workers may have the messages of this generation, and of those before.
    lost: AtomicU64,
    /// Of the messages whose session ended with a noted attempt, or that the system has yet to
    /// know as settled.
    failed: FailedAttempts<I>,
}

impl<I: Clone + Eq + Hash, E> Starts<I, E> {
    pub(crate) fn new(lasts: Duration) -> Self {
        Self {
            lasts,
            notes: Notes::default(),
            session: Mutex::new(None),
            lost: AtomicU64::new(0),
            failed: FailedAttempts::default(),
        }
    }

    pub(crate) fn open(&self, session: Arc<Session<I, E>>) {
        for (id, attempts) in self.notes.extract(|_| true) {
            self.failed.lose(id, attempts);
        }
        *lock(&self.session) = Some(session);
    }

    /// Returns how many of the attempts that the system knows count for a message.
    pub(crate) fn count(&self, id: &I, attempts: u32) -> u32 {
        self.failed.count(id, attempts)
    }

    /// Records that the system knows these changes.
    pub(crate) fn confirm(&self, changes: &Changes<I>) {
        self.notes.confirm(&changes.notes);
        self.failed.remove(changes.settled());
    }

    /// Returns whether nothing is kept of any message.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.failed.is_empty()
    }

    /// Marks the messages of this generation as lost: other workers may have them.
    pub(crate) fn lose(&self, generation: Generation) {
        self.lost.fetch_max(generation.0, Ordering::Relaxed);
    }

    fn is_lost(&self, generation: Generation) -> bool {
        generation.0 <= self.lost.load(Ordering::Relaxed)
    }
}

impl<I, E> StartGuard<WorkerPosition<I>> for Starts<I, E>
where
    I: Clone + Eq + Hash + Send + Sync,
    E: Send + Sync,
{
    fn starts(&self, _: u32, position: &WorkerPosition<I>, attempt: u32) -> Result<(), StartLater> {
        let Some(session) = lock(&self.session).clone() else {
            return Err("the source is not open".into());
        };
        if !session.is_leased() || self.is_lost(position.generation) {
            return Err("the lease of this worker has run out".into());
        }
        if attempt <= position.noted {
            return Ok(());
        }
        let id = &position.id;
        self.notes.ask(id, attempt, || {
            session.report(|changes| changes.notes.push((id.clone(), attempt)));
        })
    }

    fn settles(&self, _: u32, position: &WorkerPosition<I>, outcome: Outcome) {
        match (self.notes.remove(&position.id), outcome) {
            (Some(attempts), _) => self.failed.settle(position.id.clone(), attempts, outcome),
            (None, Outcome::Returned { attempts }) => self.failed.give_back(&position.id, attempts),
            (None, _) => {}
        }
    }

    fn holds(&self, position: &WorkerPosition<I>) -> bool {
        let session = lock(&self.session).clone();
        let is_leased = session.is_some_and(|session| session.is_leased());
        is_leased && !self.is_lost(position.generation)
    }

    fn hold(&self) -> Option<Hold> {
        let session = lock(&self.session).clone()?;
        let until = session.lock().until;
        Some(Hold::new(self.lasts, until))
    }
}
