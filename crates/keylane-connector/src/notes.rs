//! Attempts that are noted at the system before they start.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use keylane_source::{NotedAttempts, StartLater};

use crate::lock::lock;

/// The attempts at messages that a system must know before they start.
///
/// Hardly any message has an entry: a first attempt needs no note in most systems, because the
/// system marks the messages of a worker that has died. So the look-up at the end of a message is
/// one read of a number, nearly always.
#[derive(Debug)]
pub struct Notes<I> {
    attempts: Mutex<HashMap<I, NotedAttempts>>,
    /// The size of the map: nearly always 0.
    count: AtomicUsize,
}

impl<I> Default for Notes<I> {
    fn default() -> Self {
        Self {
            attempts: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }
}

impl<I: Clone + Eq + Hash> Notes<I> {
    /// Asks whether this attempt may start. `note` is called the first time: it must send the note.
    ///
    /// # Errors
    ///
    /// Returns how long to wait for the note.
    pub fn ask(&self, id: &I, attempt: u32, note: impl FnOnce()) -> Result<(), StartLater> {
        let asked = self.change(|attempts| match attempts.get_mut(id) {
            Some(known) => known.ask(attempt),
            None => attempts.entry(id.clone()).or_default().ask(attempt),
        });
        let Some(before) = asked else {
            return Ok(());
        };
        if before == 0 {
            note();
        }
        Err(StartLater::until_noted(before))
    }

    /// Records that the system knows these attempts.
    pub fn confirm<'a>(&self, notes: impl IntoIterator<Item = &'a (I, u32)>)
    where
        I: 'a,
    {
        self.change(|attempts| {
            for (id, attempt) in notes {
                if let Some(known) = attempts.get_mut(id) {
                    known.note(*attempt);
                }
            }
        });
    }

    /// Removes a message that has settled. Returns its attempts, if any needed a note.
    pub fn remove(&self, id: &I) -> Option<NotedAttempts> {
        match self.count.load(Ordering::Relaxed) {
            0 => None,
            _ => self.change(|attempts| attempts.remove(id)),
        }
    }

    /// Removes the messages for which this returns true, and returns them.
    pub fn extract(&self, is_over: impl Fn(&I) -> bool) -> Vec<(I, NotedAttempts)> {
        self.change(|attempts| attempts.extract_if(|id, _| is_over(id)).collect())
    }

    /// Removes all messages: they come again.
    pub fn clear(&self) {
        self.change(HashMap::clear);
    }

    /// Returns whether no message is here.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.attempts).is_empty()
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<I, NotedAttempts>) -> T) -> T {
        let mut attempts = lock(&self.attempts);
        let changed = change(&mut attempts);
        self.count.store(attempts.len(), Ordering::Relaxed);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_starts_once_it_is_noted_and_the_note_is_sent_once() {
        let (notes, mut sent) = (Notes::default(), 0);
        assert!(notes.ask(&7, 2, || sent += 1).is_err());
        assert!(notes.ask(&7, 2, || sent += 1).is_err());
        notes.confirm(&[(7, 2), (8, 1)]);
        assert!(notes.ask(&7, 2, || sent += 1).is_ok());
        assert!(
            notes.ask(&7, 3, || sent += 1).is_err(),
            "the next one is not noted"
        );
        assert_eq!(sent, 2);
        assert_eq!(notes.remove(&7).map(|known| known.wanted()), Some(3));
        assert!(notes.remove(&7).is_none() && notes.remove(&8).is_none());
    }

    #[test]
    fn what_is_over_is_removed() {
        let notes = Notes::default();
        for id in 0..4 {
            let _ = notes.ask(&id, 1, || {});
        }
        let mut over: Vec<i32> = notes
            .extract(|id| *id < 2)
            .into_iter()
            .map(|of| of.0)
            .collect();
        over.sort_unstable();
        assert_eq!(over, [0, 1]);
        notes.clear();
        assert_eq!(notes.count.load(Ordering::Relaxed), 0);
    }
}
