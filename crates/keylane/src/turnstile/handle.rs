//! The handle of a turnstile.

use std::fmt;
use std::hash::Hash;

use super::builder::TurnstileBuilder;
use super::error::{EnterError, TryEnterError, TurnstileClosed};
use super::place::Place;
use super::room::{Reserve, Room};
use super::shared::Shared;
use super::turn::Turn;
use crate::rt::Arc;

/// One at a time per key, in the order in which they entered; different keys beside each other.
///
/// For work that stays where it is: in a request, in a future that somebody polls already. Nothing is
/// spawned, nothing has to be `Send` or `'static`, and no runtime is needed. Work that can be sent away
/// is better off in a [`Dispatcher`](crate::Dispatcher).
///
/// Handles are cheap to clone and all the same turnstile.
///
/// # Examples
///
/// ```
/// use keylane::Turnstile;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = Turnstile::builder().concurrency(256).build()?;
///
/// let turn = accounts.turn("alice").await?;
/// // Nobody else has the turn of this key now; those of other keys do not wait.
/// assert!(accounts.try_enter("bob")?.try_turn().is_ok());
///
/// // A place is taken when it is entered, so this one is next, whoever is polled first.
/// let next = accounts.try_enter("alice")?;
/// let last = accounts.try_enter("alice")?;
/// drop(turn);
/// let turn = next.await?;
/// drop(turn);
/// last.await?;
/// assert_eq!(accounts.lanes(), 0);
/// # Ok(())
/// # }
/// ```
pub struct Turnstile<K> {
    pub(super) shared: Arc<Shared<K>>,
}

impl<K> Turnstile<K> {
    /// A turnstile with other settings than the default.
    pub fn builder() -> TurnstileBuilder<K> {
        TurnstileBuilder::new()
    }

    /// Waits for room for one place, first come, first served.
    ///
    /// # Errors
    ///
    /// [`TurnstileClosed`] once it is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the future leaves the line, and no room is taken.
    pub fn reserve(&self) -> Reserve<K> {
        Reserve::new(Arc::clone(&self.shared))
    }

    /// Room for one place, if there is some and nobody waits for it.
    #[inline]
    pub fn try_reserve(&self) -> Option<Room<K>> {
        let has_room = self.shared.room.try_take();
        let room = has_room.then(|| Room(Some(Arc::clone(&self.shared))))?;
        (!self.shared.is_closed()).then_some(room)
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Places in use: those that wait and those that have their turn, and rooms that are reserved.
    pub fn places(&self) -> usize {
        self.shared.room.taken()
    }

    /// Turns in use. `None` where as many turns are allowed as places: they are not counted then.
    pub fn turns(&self) -> Option<usize> {
        self.shared.turns_taken()
    }
}

impl<K: Hash + Eq + Clone> Turnstile<K> {
    /// Takes a place in the lane of this key at once.
    ///
    /// # Errors
    ///
    /// [`TryEnterError::Full`] at the capacity or when others wait for room, `LaneFull` at the lane
    /// capacity, `Closed` once it is closed. All give the key back.
    pub fn try_enter(&self, key: K) -> Result<Place<K>, TryEnterError<K>> {
        match self.try_reserve() {
            Some(room) => Ok(room.enter(key)?),
            None if self.is_closed() => Err(TryEnterError::Closed(key)),
            None => Err(TryEnterError::Full(key)),
        }
    }

    /// Waits for room, enters, and waits for the turn of this key.
    ///
    /// # Errors
    ///
    /// [`EnterError::LaneFull`] if as many as the lane capacity are there already, `Closed` once it is
    /// closed. The key is gone: who wants it back keeps a clone, or reserves and enters.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the future leaves the line or the lane that it is in.
    pub async fn turn(&self, key: K) -> Result<Turn<K>, EnterError<()>> {
        let closed = |TurnstileClosed| EnterError::Closed(());
        let room = self.reserve().await.map_err(closed)?;
        let place = room.enter(key).map_err(|error| match error {
            EnterError::LaneFull(_) => EnterError::LaneFull(()),
            EnterError::Closed(_) => EnterError::Closed(()),
        })?;
        place.await.map_err(closed)
    }

    /// How many keys have a place: a sum over the shards, not over the lanes.
    pub fn lanes(&self) -> usize {
        self.shared.lanes()
    }

    /// Sends home everybody who waits, and takes nobody in any more. Turns go on until they are dropped.
    pub fn close(&self) {
        self.shared.close();
    }
}

/// With the defaults of [`TurnstileBuilder`].
impl<K: Hash + Eq + Clone> Default for Turnstile<K> {
    fn default() -> Self {
        Self::builder().build().expect("the defaults fit")
    }
}

impl<K> Clone for Turnstile<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> fmt::Debug for Turnstile<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turnstile")
            .field("places", &self.places())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
