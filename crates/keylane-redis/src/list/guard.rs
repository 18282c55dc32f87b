//! Attempts are noted before they start, where a crash must not hide them.
//!
//! The first attempt at an element needs no note: if its worker dies, the server marks what that had,
//! and each attempt at those is noted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane::error::BoxError;
use keylane::source::{Outcome, StartGuard};

use super::mailbox::{Mailbox, Token};
use super::source::ListPosition;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Starts {
    noted: Mutex<HashMap<Token, Attempt>>,
    /// How many there are in it: hardly ever any.
    count: AtomicUsize,
    /// Of the session that is open.
    mailbox: Mutex<Option<Arc<Mailbox>>>,
    /// Others may have what was handed out with this token or a lower one.
    lost: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    noted: u32,
    wanted: u32,
}

impl Starts {
    pub(super) fn opened(&self, mailbox: Arc<Mailbox>) {
        self.change(HashMap::clear);
        *lock(&self.mailbox) = Some(mailbox);
    }

    /// Others may have what was handed out with this token, or a lower one.
    pub(super) fn lose(&self, token: Token) {
        self.lost.fetch_max(token, Ordering::Relaxed);
    }

    pub(super) fn note(&self, notes: &[(Token, u32)]) {
        self.change(|noted| {
            for (token, attempt) in notes {
                if let Some(known) = noted.get_mut(token) {
                    known.noted = known.noted.max(*attempt);
                }
            }
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<Token, Attempt>) -> T) -> T {
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
    fn starts(&self, _: u32, position: &ListPosition, attempt: u32) -> Result<(), BoxError> {
        let Some(mailbox) = lock(&self.mailbox).clone() else {
            return Err("the list is not open".into());
        };
        if mailbox.lock().until <= Instant::now() {
            return Err("the lease of this worker has run out".into());
        }
        if attempt <= position.noted {
            return Ok(());
        }
        let token = position.token;
        let is_new = self.change(|noted| {
            let known = noted.entry(token).or_default();
            if known.noted >= attempt {
                return None;
            }
            let is_new = known.wanted < attempt;
            known.wanted = attempt;
            Some(is_new)
        });
        let Some(is_new) = is_new else {
            return Ok(());
        };
        if is_new {
            mailbox.say(|said| said.notes.push((token, attempt)));
        }
        Err("its start is being noted".into())
    }

    fn settles(&self, _: u32, position: &ListPosition, _: Outcome) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.change(|noted| noted.remove(&position.token));
        }
    }

    fn holds(&self, position: &ListPosition) -> bool {
        let mailbox = lock(&self.mailbox).clone();
        let holds = mailbox.is_some_and(|mailbox| mailbox.lock().until > Instant::now());
        holds && position.token > self.lost.load(Ordering::Relaxed)
    }
}
