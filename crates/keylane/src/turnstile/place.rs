//! A place in the lane of a key.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::error::TurnstileClosed;
use super::shared::Owner;
use super::turn::Turn;
use super::waiter::{Stage, Waiter};
use crate::engine::Quiet;
use crate::rt::Arc;

/// A place in the lane of a key: a future of its [`Turn`].
///
/// The place was taken when its turnstile was entered, and not when this is polled first: two places
/// of one key have their turns in the order in which they entered, however they are polled.
///
/// A place whose turn has come and that nobody polls holds its key up, as an unpolled lock does.
///
/// # Cancel safety
///
/// Dropped, it leaves its lane at once: those behind it move up, in their order.
#[must_use = "a place that is dropped is given up"]
pub struct Place<K: Eq + Clone> {
    /// Whose room it uses up. `None` once it is a turn, or nothing.
    owner: Option<Owner<K>>,
    /// `None`: its turn has come.
    waiter: Option<Arc<Waiter>>,
}

impl<K: Eq + Clone> Place<K> {
    pub(super) fn new(owner: Option<Owner<K>>, waiter: Option<Arc<Waiter>>) -> Self {
        Self { owner, waiter }
    }

    /// The key, if the place stands in a lane and has not become a turn.
    pub fn key(&self) -> Option<&K> {
        self.owner.as_ref()?.key.as_ref().map(Quiet::get)
    }

    /// Its turn has not come, or it was sent home.
    fn waits(&self) -> bool {
        let mut waiter = self.waiter.iter();
        waiter.any(|waiter| waiter.stage() != Stage::Granted)
    }

    /// The turn, if it has come already.
    ///
    /// # Errors
    ///
    /// The place itself, if it has to wait.
    #[inline]
    pub fn try_turn(mut self) -> Result<Turn<K>, Self> {
        if self.waits() {
            return Err(self);
        }
        match self.owner.take() {
            Some(owner) => Ok(Turn::new(owner)),
            None => Err(self),
        }
    }
}

// It holds nothing that must not move.
impl<K: Eq + Clone> Unpin for Place<K> {}

impl<K: Eq + Clone> Future for Place<K> {
    type Output = Result<Turn<K>, TurnstileClosed>;

    /// # Panics
    ///
    /// If it is polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stage = match &self.waiter {
            None => Stage::Granted,
            Some(waiter) => ready!(waiter.poll(cx)),
        };
        if stage != Stage::Granted {
            // Dropping it does what is left to be done.
            return Poll::Ready(Err(TurnstileClosed));
        }
        self.waiter = None;
        let owner = self
            .owner
            .take()
            .expect("a place is polled until it is ready");
        Poll::Ready(Ok(Turn::new(owner)))
    }
}

impl<K: Eq + Clone> Drop for Place<K> {
    fn drop(&mut self) {
        let Some(owner) = self.owner.take() else {
            return;
        };
        let Owner { shared, key, hash } = &owner;
        match self.waiter.take() {
            None => shared.end(key.as_ref(), *hash, true),
            Some(waiter) => shared.leave(key.as_ref(), *hash, &waiter),
        }
    }
}

impl<K: Eq + Clone> fmt::Debug for Place<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("waits", &self.waits())
            .finish_non_exhaustive()
    }
}
