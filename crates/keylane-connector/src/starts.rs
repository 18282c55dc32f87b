//! Whether attempts may start, and go on.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use keylane_source::{Generation, Outcome, StartGuard, StartLater};

use crate::changes::Changes;
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
    /// Other workers may have the messages of this generation, and of those before.
    lost: AtomicU64,
    /// Messages with a noted attempt that had not failed when their session ended, and the number
    /// of failed attempts. This process lives, so the noted attempt was no crash.
    survived: Mutex<HashMap<I, u32>>,
}

/// With this many, messages that have not come back to this process are forgotten.
const MOST_SURVIVED: usize = 16_384;

impl<I: Clone + Eq + Hash, E> Starts<I, E> {
    pub(crate) fn new() -> Self {
        Self {
            notes: Notes::default(),
            session: Mutex::new(None),
            lost: AtomicU64::new(0),
            survived: Mutex::default(),
        }
    }

    pub(crate) fn open(&self, session: Arc<Session<I, E>>) {
        for (id, attempts) in self.notes.extract(|_| true) {
            self.survive(id, attempts.wanted().saturating_sub(1));
        }
        *lock(&self.session) = Some(session);
    }

    fn survive(&self, id: I, failed: u32) {
        let mut survived = lock(&self.survived);
        if survived.len() >= MOST_SURVIVED {
            survived.clear();
        }
        survived.insert(id, failed);
    }

    /// Returns how many of the attempts that the system knows count for a message.
    pub(crate) fn count(&self, id: &I, attempts: u32) -> u32 {
        // As for nearly all messages.
        if attempts == 0 {
            return 0;
        }
        let failed = lock(&self.survived).get(id).copied();
        // If there are more, another process has noted them.
        let failed = failed.filter(|failed| attempts == failed.saturating_add(1));
        failed.unwrap_or(attempts)
    }

    /// Records that the system knows these changes.
    pub(crate) fn confirm(&self, changes: &Changes<I>) {
        self.notes.confirm(&changes.notes);
        let mut survived = lock(&self.survived);
        if !survived.is_empty() {
            for id in changes.done.iter().chain(&changes.gone) {
                survived.remove(id);
            }
        }
    }

    /// Marks the messages of this generation as lost: other workers may have them.
    pub(crate) fn lose(&self, generation: Generation) {
        self.lost.fetch_max(generation.0, Ordering::Relaxed);
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
        if !session.is_leased() {
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
        if let Some(attempt) = self.notes.remove(&position.id) {
            // Until the system knows it.
            let failed = match outcome {
                Outcome::Returned { attempts } => attempts,
                _ => attempt.wanted().saturating_sub(1),
            };
            self.survive(position.id.clone(), failed);
        }
    }

    fn holds(&self, position: &WorkerPosition<I>) -> bool {
        let session = lock(&self.session).clone();
        let is_leased = session.is_some_and(|session| session.is_leased());
        is_leased && position.generation.0 > self.lost.load(Ordering::Relaxed)
    }
}
