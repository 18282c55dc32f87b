//! Notes attempts before they start, where a crash must not hide them.
//!
//! The first attempt at an element needs no note: if its worker dies, the server marks the elements
//! of that worker, and each attempt at these is noted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane_source::{NotedAttempts, Outcome, StartGuard, StartLater};
use tokio::time::Instant;

use super::outbox::{ListOutbox, Place, Token};
use super::position::ListPosition;

#[derive(Debug, Default)]
pub(super) struct Starts {
    noted: Mutex<HashMap<Place, NotedAttempts>>,
    /// The size of the map: nearly always 0.
    count: AtomicUsize,
    /// The outbox of the open session.
    mailbox: Mutex<Option<Arc<ListOutbox>>>,
    /// Other workers may have the elements that were handed out with this token or a lower one.
    lost: AtomicU64,
}

impl Starts {
    pub(super) fn opened(&self, mailbox: Arc<ListOutbox>) {
        self.change(HashMap::clear);
        *lock(&self.mailbox) = Some(mailbox);
    }

    /// Marks the elements with this token or a lower one as lost: other workers may have them.
    pub(super) fn lose(&self, token: Token) {
        self.lost.fetch_max(token, Ordering::Relaxed);
    }

    pub(super) fn note(&self, notes: &[(Place, u32)]) {
        self.change(|noted| {
            for (place, attempt) in notes {
                if let Some(known) = noted.get_mut(place) {
                    known.note(*attempt);
                }
            }
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<Place, NotedAttempts>) -> T) -> T {
        let mut noted = lock(&self.noted);
        let changed = change(&mut noted);
        self.count.store(noted.len(), Ordering::Relaxed);
        changed
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StartGuard<ListPosition> for Starts {
    fn starts(&self, _: u32, position: &ListPosition, attempt: u32) -> Result<(), StartLater> {
        let Some(mailbox) = lock(&self.mailbox).clone() else {
            return Err("the list is not open".into());
        };
        if mailbox.lock().until <= Instant::now() {
            return Err("the lease of this worker has run out".into());
        }
        if attempt <= position.noted {
            return Ok(());
        }
        let place = position.place;
        let before = self.change(|noted| noted.entry(place).or_default().ask(attempt));
        let Some(before) = before else {
            return Ok(());
        };
        if before == 0 {
            mailbox.say(|said| said.notes.push((place, attempt)));
        }
        Err(StartLater::until_noted(before))
    }

    fn settles(&self, _: u32, position: &ListPosition, _: Outcome) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.change(|noted| noted.remove(&position.place));
        }
    }

    fn holds(&self, position: &ListPosition) -> bool {
        let mailbox = lock(&self.mailbox).clone();
        let holds = mailbox.is_some_and(|mailbox| mailbox.lock().until > Instant::now());
        holds && position.token > self.lost.load(Ordering::Relaxed)
    }
}
