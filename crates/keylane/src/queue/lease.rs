//! The right of one worker to one message, for a time.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::desk::Outcome;
use super::error::LeaseError;
use super::item::Item;
use super::returned::Returned;
use super::shared::Shared;
use crate::clock;
use crate::rt::Arc;

/// What is to become of a message that a worker has failed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It may be leased again at once, after the other keys that are ready.
    Now,
    /// It may be leased again after this time (more than a year counts as a year). Nothing behind it
    /// is handed out before.
    After(Duration),
    /// Never: it is given up on, and the next message of its key may be leased.
    Never,
}

/// The right of one worker to one message, until it is completed or the time is over.
///
/// While there is a lease, no other message of its key is handed out. It dereferences to the message.
///
/// *Dropped*, on purpose or because its worker panicked or was cancelled, it puts its message back:
/// still the first of its key, and to be had at once. *Run out*, the same has happened by itself; the
/// worker still sees the message, but [`complete`](Self::complete), [`fail`](Self::fail) and
/// [`extend`](Self::extend) are refused, since another worker may have it now.
///
/// A message is lent and not moved: the queue must be able to give it to the next worker while a late
/// one still reads it. So workers see `&M`, and `M` is `Sync` and need not be `Clone`. Make it an
/// `Arc` or clone what you must own.
///
/// # Examples
///
/// A lease is ended once, and the compiler sees to it:
///
/// ```compile_fail,E0382
/// # async fn worker(queue: keylane::Queue<u64, String>) {
/// let lease = queue.dequeue().await.unwrap();
/// lease.complete();
/// lease.complete();
/// # }
/// ```
#[must_use = "a lease that is dropped puts its message back"]
pub struct Lease<K, M> {
    pub(super) shared: Arc<Shared<K, M>>,
    pub(super) item: Arc<Item<K, M>>,
    /// Where it is among the leases, until its worker has ended it.
    pub(super) slot: Option<usize>,
    pub(super) token: u64,
    pub(super) attempt: u32,
}

impl<K, M> Lease<K, M> {
    /// The message.
    pub fn message(&self) -> &M {
        self.item.message.get()
    }

    /// Its key.
    pub fn key(&self) -> &K {
        self.item.key.get()
    }

    /// How often this message has been leased, this time included.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The number of this lease: each lease of a queue has a larger one than all before it, whatever
    /// their keys.
    ///
    /// What a worker writes elsewhere can be *fenced* with it: a sink that remembers the largest token
    /// it has seen for a key, and refuses smaller ones, is safe from workers whose lease has run out.
    /// (M. Kleppmann, "How to do distributed locking", 2016.) Tokens begin at 1 in each queue.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// When the lease runs out, or `None` if it has.
    pub fn expires_at(&self) -> Option<tokio::time::Instant> {
        let until = self.shared.until(self.slot?, self.token);
        until.map(tokio::time::Instant::from_std)
    }

    /// How long the lease will last; zero if it has run out.
    pub fn time_left(&self) -> Duration {
        self.expires_at().map_or(Duration::ZERO, |until| {
            until.into_std().saturating_duration_since(clock::now())
        })
    }

    /// Lets the lease run out so long from now, and not earlier than it would have.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Expired`] if it has run out; [`LeaseError::Zero`] or [`LeaseError::TooLong`] for
    /// a time that is no extension or is longer than a year.
    pub fn extend(&self, time: Duration) -> Result<(), LeaseError> {
        let slot = self.slot.ok_or(LeaseError::Expired)?;
        self.shared.extend(slot, self.token, time)
    }
}

impl<K: Eq + Clone, M> Lease<K, M> {
    /// The message is done: it settles, and the next one of its key may be leased.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Expired`] if the lease has run out. The message is not settled by this.
    pub fn complete(mut self) -> Result<(), LeaseError> {
        let slot = self.end()?;
        self.shared
            .settle(slot, self.token, Outcome::Completed)
            .map(drop)
    }

    /// The worker has failed with the message.
    ///
    /// The queue counts attempts and leaves it to the worker when to give up: a message that kills
    /// its workers comes back for ever to those who never look at [`attempt`](Self::attempt).
    ///
    /// # Errors
    ///
    /// [`LeaseError::Expired`] if the lease has run out. Then the message is back in any case.
    pub fn fail(mut self, again: Again) -> Result<(), LeaseError> {
        let wait = match again {
            Again::Now => Duration::ZERO,
            Again::After(time) => time,
            Again::Never => return self.give_up().map(drop),
        };
        let slot = self.end()?;
        self.shared.put_off(slot, self.token, wait)
    }

    /// Gives up on the message, and takes it: `fail(Again::Never)` for those who still want it.
    ///
    /// The next message of its key may be leased from here on. What must be stored before that, a dead
    /// letter for example, is better written while there is a lease.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Expired`] if the lease has run out. The message is not settled by this.
    pub fn give_up(mut self) -> Result<Returned<K, M>, LeaseError> {
        let slot = self.end()?;
        self.shared
            .settle(slot, self.token, Outcome::GivenUp)
            .map(Returned::new)
    }

    /// From here on its drop does nothing.
    fn end(&mut self) -> Result<usize, LeaseError> {
        self.slot.take().ok_or(LeaseError::Expired)
    }
}

impl<K, M> Deref for Lease<K, M> {
    type Target = M;

    fn deref(&self) -> &M {
        self.message()
    }
}

impl<K, M> Drop for Lease<K, M> {
    fn drop(&mut self) {
        // Nothing happens if it has run out: its token is not among the leases any more.
        if let Some(slot) = self.slot {
            self.shared.release(slot, self.token);
        }
    }
}

impl<K, M> fmt::Debug for Lease<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the key nor the message: they are the user's.
        f.debug_struct("Lease")
            .field("token", &self.token)
            .field("attempt", &self.attempt)
            .field("time_left", &self.time_left())
            .finish_non_exhaustive()
    }
}
