//! How many attempts have failed, where the system has noted one more.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use keylane_source::{NotedAttempts, Outcome};

use crate::lock::lock;

/// With this many, messages that have not come back to this process are forgotten.
const MOST: usize = 16_384;

/// How many attempts at messages have failed, where the system may have noted one more.
///
/// That one had not failed, or not even started, when its message was lost or returned. This
/// process lives, so it was no crash and does not count. A message stays here until the system
/// knows the right number. If 16,384 messages have not come back, all are forgotten: then the noted
/// attempts count.
///
/// # Examples
///
/// ```
/// use keylane_connector::{FailedAttempts, Notes};
///
/// let (notes, failed) = (Notes::default(), FailedAttempts::default());
/// // The third attempt is noted, and the connection breaks before it starts.
/// assert!(notes.ask(&"order 7", 3, || {}).is_err());
/// for (id, attempts) in notes.extract(|_| true) {
///     failed.lose(id, attempts);
/// }
/// assert_eq!(failed.count(&"order 7", 3), 2);
/// // Another process has noted one more since.
/// assert_eq!(failed.count(&"order 7", 4), 4);
/// ```
#[derive(Debug)]
pub struct FailedAttempts<I>(Mutex<HashMap<I, u32>>);

impl<I> Default for FailedAttempts<I> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<I: Eq + Hash> FailedAttempts<I> {
    /// Records a message that was lost: the last attempt that asked to start has not failed.
    pub fn lose(&self, id: I, attempts: NotedAttempts) {
        self.insert(id, attempts.wanted().saturating_sub(1));
    }

    /// Records a message that has settled, until the system knows it.
    pub fn settle(&self, id: I, attempts: NotedAttempts, outcome: Outcome) {
        match outcome {
            Outcome::Returned { attempts } => self.insert(id, attempts),
            _ => self.lose(id, attempts),
        }
    }

    /// Records that a message was returned, none of whose attempts needed a note: if it is here,
    /// more of its attempts may have failed since.
    pub fn give_back(&self, id: &I, attempts: u32) {
        if let Some(failed) = lock(&self.0).get_mut(id) {
            *failed = attempts;
        }
    }

    fn insert(&self, id: I, attempts: u32) {
        let mut failed = lock(&self.0);
        if failed.len() >= MOST {
            failed.clear();
        }
        failed.insert(id, attempts);
    }

    /// Returns how many of the attempts that the system knows count for a message.
    pub fn count(&self, id: &I, noted: u32) -> u32 {
        // As for nearly all messages.
        if noted == 0 {
            return 0;
        }
        let failed = lock(&self.0).get(id).copied();
        // If there are more, another process has noted them.
        let failed = failed.filter(|failed| noted == failed.saturating_add(1));
        failed.unwrap_or(noted)
    }

    /// Returns whether no message is here.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Removes messages whose settlement the system knows.
    pub fn remove(&self, settled: impl IntoIterator<Item: Borrow<I>>) {
        let mut failed = lock(&self.0);
        if !failed.is_empty() {
            for id in settled {
                failed.remove(id.borrow());
            }
        }
    }
}
