//! Room for one place.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::error::{EnterError, TurnstileClosed};
use super::gate::Asked;
use super::place::Place;
use super::shared::{Owner, Shared, Standing};
use super::waiter::{Stage, Waiter};
use crate::engine::Quiet;
use crate::rt::Arc;

/// Room for one place at a [`Turnstile`](super::Turnstile): who has it can enter at once.
///
/// Dropped unused, it goes to the next who waits for room.
#[must_use = "room that nobody uses keeps others waiting"]
pub struct Room<K>(pub(super) Option<Arc<Shared<K>>>);

impl<K: Eq + Clone> Room<K> {
    /// Takes a place in the lane of this key, behind all that have entered before.
    ///
    /// # Errors
    ///
    /// [`EnterError::LaneFull`] if as many as `lane_capacity` have a place there; the room is free
    /// again. [`EnterError::Closed`] if the turnstile is closed. Both give the key back.
    ///
    /// # Panics
    ///
    /// If the key's `Hash`, `Eq` or `Clone` panics. Then it has not entered, and the room is free.
    #[inline]
    pub fn enter(self, key: K) -> Result<Place<K>, EnterError<K>> {
        let Some(shared) = &self.0 else {
            return Err(EnterError::Closed(key));
        };
        let key = Quiet::new(key);
        let hash = (shared.hash)(key.get());
        let waiter = match shared.enter(Some(&key), hash) {
            Standing::Granted => None,
            Standing::Waits(waiter) => Some(waiter),
            Standing::LaneFull => return Err(EnterError::LaneFull(key.into_inner())),
            Standing::Closed => return Err(EnterError::Closed(key.into_inner())),
        };
        Ok(self.place(Some(key), hash, waiter))
    }

    /// Takes a place that stands in no lane: its turn comes as soon as there is one.
    ///
    /// # Errors
    ///
    /// [`TurnstileClosed`] if the turnstile is closed.
    pub fn enter_keyless(self) -> Result<Place<K>, TurnstileClosed> {
        let shared = self.0.as_ref().ok_or(TurnstileClosed)?;
        let waiter = match shared.enter(None, 0) {
            Standing::Granted => None,
            Standing::Waits(waiter) => Some(waiter),
            Standing::LaneFull | Standing::Closed => return Err(TurnstileClosed),
        };
        Ok(self.place(None, 0, waiter))
    }

    fn place(mut self, key: Option<Quiet<K>>, hash: u64, waiter: Option<Arc<Waiter>>) -> Place<K> {
        // From here on the room is the place's.
        let shared = self.0.take();
        Place::new(shared.map(|shared| Owner { shared, key, hash }), waiter)
    }
}

impl<K> Drop for Room<K> {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.room.give();
        }
    }
}

impl<K> fmt::Debug for Room<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

/// The future of [`Turnstile::reserve`](super::Turnstile::reserve): waits for room.
///
/// First come, first served. Dropped, it leaves the line; room that was on its way goes to the next.
#[must_use = "futures do nothing unless polled"]
pub struct Reserve<K> {
    shared: Arc<Shared<K>>,
    waiter: Option<Arc<Waiter>>,
}

impl<K> Reserve<K> {
    pub(super) fn new(shared: Arc<Shared<K>>) -> Self {
        Self {
            shared,
            waiter: None,
        }
    }

    fn room(&self) -> Room<K> {
        Room(Some(Arc::clone(&self.shared)))
    }
}

// It holds nothing that must not move.
impl<K> Unpin for Reserve<K> {}

impl<K> Future for Reserve<K> {
    type Output = Result<Room<K>, TurnstileClosed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.waiter.is_none() {
            let waiter = Arc::new(Waiter::new(Stage::Called));
            match self.shared.room.take_or_wait(&waiter) {
                Asked::Taken => return Poll::Ready(Ok(self.room())),
                Asked::Waits => self.waiter = Some(waiter),
                Asked::Gone | Asked::Closed => return Poll::Ready(Err(TurnstileClosed)),
            }
        }
        let stage = match &self.waiter {
            Some(waiter) => std::task::ready!(waiter.poll(cx)),
            None => return Poll::Pending,
        };
        self.waiter = None;
        Poll::Ready(match stage {
            Stage::Granted => Ok(self.room()),
            _ => Err(TurnstileClosed),
        })
    }
}

impl<K> Drop for Reserve<K> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else {
            return;
        };
        waiter.hush();
        let left = self.shared.room.leave(&waiter);
        if !left
            && waiter.stage() == Stage::Granted
            && !cfg!(keylane_mutant = "turnstile-room-lost")
        {
            self.shared.room.give();
        }
    }
}

impl<K> fmt::Debug for Reserve<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").finish_non_exhaustive()
    }
}
