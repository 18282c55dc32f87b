//! Attempts that are noted before they start.
//!
//! The first attempt at a message that is handed over needs no note: if the worker dies with it, its
//! lane is known to have had a death, and the messages in it are looked at one by one from then on.
//! Each further attempt is noted in the row of the message.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane::error::BoxError;
use keylane::source::{Outcome, StartGuard};
use tokio::sync::Notify;

use super::super::lane::LaneId;
use super::reader::Position;

#[derive(Debug)]
pub(super) struct Starts {
    noted: Mutex<Noted>,
    /// How many messages there are in it: hardly ever any.
    count: AtomicUsize,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Noted {
    /// Attempts that are in the rows, or about to be, by sequence.
    attempts: HashMap<u64, Attempt>,
    wanted: Vec<(LaneId, u64, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    noted: u32,
    wanted: u32,
}

impl Starts {
    pub(super) fn new(wake: Arc<Notify>) -> Self {
        Self {
            noted: Mutex::default(),
            count: AtomicUsize::new(0),
            wake,
        }
    }

    /// Attempts that are to be noted.
    pub(super) fn take_wanted(&self) -> Vec<(LaneId, u64, u32)> {
        match self.count.load(Ordering::Relaxed) {
            0 => Vec::new(),
            _ => std::mem::take(&mut self.noted().wanted),
        }
    }

    /// This attempt is noted.
    pub(super) fn note(&self, sequence: u64, attempt: u32) {
        if let Some(known) = self.noted().attempts.get_mut(&sequence) {
            known.noted = known.noted.max(attempt);
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StartGuard<Position> for Starts {
    fn starts(&self, _: u32, position: &Position, attempt: u32) -> Result<(), BoxError> {
        if attempt <= position.noted {
            return Ok(());
        }
        let mut noted = self.noted();
        let known = noted.attempts.entry(position.sequence).or_default();
        if known.noted >= attempt {
            return Ok(());
        }
        let is_new = known.wanted < attempt;
        known.wanted = attempt;
        if is_new {
            noted
                .wanted
                .push((position.lane, position.sequence, attempt));
        }
        self.count.store(noted.attempts.len(), Ordering::Relaxed);
        drop(noted);
        self.wake.notify_one();
        Err("its start is being noted".into())
    }

    fn settles(&self, _: u32, position: &Position, _: Outcome) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut noted = self.noted();
            noted.attempts.remove(&position.sequence);
            self.count.store(noted.attempts.len(), Ordering::Relaxed);
        }
    }
}
