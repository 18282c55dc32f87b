//! Notes attempts before they start, and keeps attempts that have dropped their transactions.
//!
//! The first attempt at a message that is handed over needs no note: if the worker dies with it,
//! the database knows that a worker died with this lane, and the messages in it are then looked at
//! one by one. Each further attempt is noted in the row of the message. If its claim is lost
//! meanwhile, the attempt has not failed, and this process does not count it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use keylane_connector::{FailedAttempts, Notes, lock};
use keylane_source::{Hold, Outcome, StartGuard, StartLater};
use tokio::sync::{Notify, watch};

use super::super::lane::LaneId;
use super::super::turn::{MessageRef, RoundTrip};
use super::super::uncommitted::{self, InHand};
use super::position::SqlPosition;

#[derive(Debug)]
pub(super) struct Starts {
    /// The attempts that are in the rows, or about to be.
    notes: Notes<MessageRef>,
    /// Of the messages that were lost with a noted attempt, and have not settled since.
    failed: FailedAttempts<MessageRef>,
    noted: Mutex<Noted>,
    /// How many messages there are in it: almost always 0.
    count: AtomicUsize,
    wake: Arc<Notify>,
    claims: Mutex<Option<Claims>>,
}

/// The claims of the current worker of the source.
#[derive(Debug)]
struct Claims {
    /// The first opening of the source with this worker.
    since: u64,
    lost: watch::Receiver<bool>,
    hold: watch::Receiver<Hold>,
}

#[derive(Debug, Default)]
struct Noted {
    /// Attempts to be noted.
    wanted: Vec<(LaneId, u64, u32)>,
    /// Messages that an attempt with a dropped transaction has settled as done, and the number of
    /// that attempt.
    dropped: HashMap<InHand, u32>,
}

impl Starts {
    pub(super) fn new(wake: Arc<Notify>) -> Self {
        Self {
            notes: Notes::default(),
            failed: FailedAttempts::default(),
            noted: Mutex::default(),
            count: AtomicUsize::new(0),
            wake,
            claims: Mutex::default(),
        }
    }

    /// Records that the source is another worker from this opening on.
    pub(super) fn joined(
        &self,
        opening: u64,
        (lost, hold): (watch::Receiver<bool>, watch::Receiver<Hold>),
    ) {
        let since = opening;
        self.change(|noted| noted.wanted.clear());
        *lock(&self.claims) = Some(Claims { since, lost, hold });
    }

    /// Removes and returns the number of the attempt that finished a message, if that attempt
    /// dropped its transaction.
    pub(super) fn take_dropped(&self, message: InHand) -> Option<u32> {
        match self.count.load(Ordering::Relaxed) {
            0 => None,
            _ => self.change(|noted| noted.dropped.remove(&message)),
        }
    }

    /// Begins another opening of the source. No call asks for messages of an earlier one. They come
    /// again, and the attempts that were under way have not failed.
    pub(super) fn begin(&self, opening: u64) {
        for (message, attempts) in self.notes.extract(|_| true) {
            self.failed.lose(message, attempts);
        }
        self.change(|noted| noted.dropped.retain(|message, _| message.0 == opening));
    }

    /// Changes the notes.
    fn change<T>(&self, change: impl FnOnce(&mut Noted) -> T) -> T {
        let mut noted = lock(&self.noted);
        let changed = change(&mut noted);
        let count = noted.wanted.len() + noted.dropped.len();
        self.count.store(count, Ordering::Relaxed);
        changed
    }

    /// Takes the attempts that are to be noted.
    pub(super) fn take_wanted(&self) -> Vec<(LaneId, u64, u32)> {
        match self.count.load(Ordering::Relaxed) {
            0 => Vec::new(),
            _ => self.change(|noted| std::mem::take(&mut noted.wanted)),
        }
    }

    /// Records that the database knows what a turn has reported.
    pub(super) fn told(&self, turn: &RoundTrip) {
        let attempts = turn.attempts.iter();
        let attempts = attempts.map(|(_, message, attempt)| (*message, *attempt));
        self.notes.confirm(&attempts.collect::<Vec<_>>());
        self.failed.remove(turn.done.iter().map(|done| done.1));
    }

    /// Returns how many of the attempts that the database knows have failed.
    pub(super) fn count(&self, message: MessageRef, attempts: u32) -> u32 {
        self.failed.count(&message, attempts)
    }

    /// Records an attempt that was noted before its message is handed over.
    pub(super) fn noted_before(&self, message: MessageRef, attempt: u32) {
        let _ = self.notes.ask(&message, attempt, || {});
        self.notes.confirm(&[(message, attempt)]);
    }
}

impl StartGuard<SqlPosition> for Starts {
    fn starts(&self, _: u32, position: &SqlPosition, attempt: u32) -> Result<(), StartLater> {
        // An earlier attempt may have left it there.
        uncommitted::remove(position.in_hand());
        if attempt <= position.noted {
            return Ok(());
        }
        self.notes.ask(&position.name(), attempt, || {
            let wanted = (position.lane, position.sequence, attempt);
            self.change(|noted| noted.wanted.push(wanted));
            self.wake.notify_one();
        })
    }

    fn settles(&self, _: u32, position: &SqlPosition, outcome: Outcome) {
        let attempt = self.notes.remove(&position.name());
        match (attempt, outcome) {
            // Its letter is in its place.
            (_, Outcome::DeadLettered) => self.failed.remove([position.name()]),
            (Some(attempts), _) => self.failed.settle(position.name(), attempts, outcome),
            (None, Outcome::Returned { attempts }) => {
                self.failed.give_back(&position.name(), attempts);
            }
            (None, _) => {}
        }
        if uncommitted::remove(position.in_hand()) && outcome == Outcome::Done {
            let attempt = attempt.map_or(0, |attempt| attempt.noted());
            let attempt = position.noted.max(attempt);
            self.change(|noted| noted.dropped.insert(position.in_hand(), attempt));
        }
    }

    fn holds(&self, position: &SqlPosition) -> bool {
        let claims = lock(&self.claims);
        claims.as_ref().is_some_and(|claims| {
            // The renewals end with the session.
            let are_renewed = claims.lost.has_changed().is_ok() && !*claims.lost.borrow();
            are_renewed && position.in_hand().0 >= claims.since
        })
    }

    fn hold(&self) -> Option<Hold> {
        let claims = lock(&self.claims);
        let claims = claims.as_ref()?;
        let is_lost = *claims.lost.borrow();
        (!is_lost).then(|| *claims.hold.borrow())
    }
}
