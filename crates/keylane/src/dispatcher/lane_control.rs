//! One key: why it waits, and what to do about it.

use std::fmt;
use std::hash::Hash;

use keylane_lanes::Undecidable;
use keylane_rt::Arc;
use keylane_source::lease::LaneHolder;

use super::address::Address;
use super::handle::Dispatcher;
use crate::engine::Engine;
use crate::error::{BoxError, LaneError};
use crate::lane::{FailedAttempt, LaneView, MessageView};
use crate::types::Of;

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Returns the lane of a key, to inspect it or to act on it. The lane need not exist.
    pub fn lane(&self, key: &K) -> LaneControl<K, M, O, E> {
        let hash = (self.address.hash)(key);
        LaneControl {
            engine: Arc::clone(&self.engine),
            address: Arc::clone(&self.address),
            key: key.clone(),
            hash,
        }
    }

    /// Returns how deep the lane of a key is, and why it waits; `None` if the key has no messages
    /// here.
    pub fn inspect(&self, key: &K) -> Option<LaneView> {
        self.lane(key).inspect()
    }
}

/// The lane of one key, whether or not it exists at the moment.
///
/// An operator may call these functions from any thread, inside a runtime or not.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use keylane::watching::LaneState;
/// use keylane::{Dispatcher, OnExhausted};
///
/// let ledger = Dispatcher::builder(|entry: &i64| entry.abs() % 10)
///     .on_exhausted(OnExhausted::Halt)
///     .spawn(|entry: i64| async move { if entry < 0 { Err("overdrawn") } else { Ok(entry) } })?;
///
/// let receipt = ledger.submit(-3).await?;
/// # while ledger.stats().halted == 0 { tokio::task::yield_now().await }
/// let lane = ledger.lane(&3);
/// assert!(matches!(lane.inspect().map(|view| view.state), Some(LaneState::Halted { .. })));
///
/// // An operator corrects the entry; the receipt of the old one gets the new answer.
/// lane.replace(3).map_err(|_| "not halted")?;
/// assert_eq!(receipt.await?, 3);
/// # Ok(())
/// # }
/// ```
pub struct LaneControl<K, M, O, E> {
    engine: Arc<Engine<Of<K, M, O, E>>>,
    address: Arc<Address<K, M>>,
    key: K,
    hash: u64,
}

impl<K, M, O, E> LaneControl<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// Returns the key of this lane.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns how deep the lane is, and why it waits; `None` if the key has no messages here.
    pub fn inspect(&self) -> Option<LaneView> {
        let now = self.engine.clocks.now();
        self.engine.table.inspect(&self.key, self.hash, now)
    }

    /// Returns the first messages of the lane, up to `most`, in the order of acceptance. A head on
    /// its way to a runner ([`LaneState::Ready`](crate::watching::LaneState::Ready)) is not among
    /// them, and of one that is with its handler the origin is not known.
    ///
    /// Where they come from a source, its driver is asked for their positions, for a second at
    /// most. Nothing else waits for that.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    pub async fn messages(&self, most: usize) -> Vec<MessageView> {
        let now = self.engine.clocks.now();
        let listed = self.engine.table.messages(&self.key, self.hash, most, now);
        self.engine.with_origins(listed).await
    }

    /// Asks the leases who has the lease of this key, in this process or in another one; `None` if
    /// none has it, if the leases do not know, or without
    /// [`leased_by`](crate::Builder::leased_by). Of the leases in `keylane-leases` that is a call
    /// to their store, each time.
    ///
    /// # Errors
    ///
    /// The error of the leases.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does nothing.
    pub async fn lease_holder(&self) -> Result<Option<LaneHolder>, BoxError> {
        self.engine.table.lease_holder(&self.key).await
    }

    /// Returns the last attempts of this key that failed, up to `most`, the last one first. 32 of a
    /// key are remembered, and 1,024 of all keys together.
    pub fn failed(&self, most: usize) -> Vec<FailedAttempt> {
        self.engine.probe.failed.of(self.hash, most)
    }

    /// Resumes a paused lane, tries a halted head again from attempt 1, or waits once more for
    /// missing versions. A lane that is paused and halted must be resumed twice.
    ///
    /// # Errors
    ///
    /// [`LaneError::NotHalted`] if there is nothing to decide.
    pub fn resume(&self) -> Result<(), LaneError> {
        let resume = || self.engine.resume(&self.key, self.hash);
        let resumed = self.engine.inside(resume);
        self.engine.wake_watchdog();
        resumed.map_err(|why| refusal(why, ()))
    }

    /// Settles the head as failed and goes on with the message behind it. The head is halted, waits
    /// for its next attempt, or has not started. Where versions are missing, they are given up.
    ///
    /// In a paused lane it skips the first message that could start; to give up missing versions,
    /// call [`resume`](Self::resume) first.
    ///
    /// # Errors
    ///
    /// [`LaneError::NotHalted`] if there is nothing to decide, [`LaneError::InFlight`] if the head
    /// is in flight or on its way to a runner
    /// ([`LaneState::Ready`](crate::watching::LaneState::Ready)).
    pub fn skip(&self) -> Result<(), LaneError> {
        let skip = || self.engine.skip(&self.key, self.hash);
        let skipped = self.engine.inside(skip);
        self.engine.wake_watchdog();
        skipped.map_err(|why| refusal(why, ()))
    }

    /// Settles all messages of this key that are not in flight, and returns how many there were.
    ///
    /// They settle with [`ReceiptError::Purged`](crate::error::ReceiptError::Purged). A head on its
    /// way to a runner ([`LaneState::Ready`](crate::watching::LaneState::Ready)) stays and is
    /// handled, and so are two messages that are being merged at this moment. Messages that were
    /// merged into another count as one with it. Messages that
    /// [others may pass](crate::discipline::Delayed::Pass) are not in the lane yet. The report counts purged
    /// messages as discarded.
    pub fn purge(&self) -> usize {
        let purge = || self.engine.purge(&self.key, self.hash);
        let purged = self.engine.inside(purge);
        self.engine.wake_watchdog();
        purged
    }

    /// Tries the head that waits for its next attempt now, or takes the dead letter to its sink
    /// now.
    ///
    /// # Errors
    ///
    /// [`LaneError::NotHalted`] if nothing of this key waits for an attempt, or the lane is paused,
    /// [`LaneError::InFlight`] if it is under way.
    pub fn retry_now(&self) -> Result<(), LaneError> {
        let retry = || self.engine.retry_now(&self.key, self.hash);
        let retried = self.engine.inside(retry);
        self.engine.wake_watchdog();
        retried.map_err(|why| refusal(why, ()))
    }

    /// Pauses the lane: nothing of this key starts until [`resume`](Self::resume).
    ///
    /// A message in flight goes on to its end, dead letter included, and does not start another
    /// attempt. Messages still come in, up to the limit of the lane. When the dispatcher is
    /// drained, a paused lane is handed back. Pausing a paused lane has no effect.
    pub fn pause(&self) {
        let pause = || self.engine.pause(&self.key, self.hash);
        self.engine.inside(pause);
        self.engine.wake_watchdog();
    }

    /// Replaces the head with another message, and tries that one from attempt 1. The head is
    /// halted, waits for its next attempt, or has not started.
    ///
    /// Returns the old message. Its receipt now belongs to the new one.
    ///
    /// # Errors
    ///
    /// [`LaneError::NotHalted`] if there is nothing to decide, [`LaneError::InFlight`] if the head
    /// is in flight or on its way to a runner, [`LaneError::OtherKey`] for a message of another
    /// key, [`LaneError::TooLarge`] for one above the capacity in bytes. Each gives it back.
    ///
    /// # Panics
    ///
    /// If the key function, the size function or the key's `Hash` panics. Nothing has changed.
    pub fn replace(&self, message: M) -> Result<M, LaneError<M>> {
        if (self.address.locate)(&message).0.as_ref() != Some(&self.key) {
            return Err(LaneError::OtherKey(message));
        }
        let limit = self.engine.settings.capacity_bytes;
        let Ok(weight) = self.address.weigh(&message, limit) else {
            return Err(LaneError::TooLarge(message));
        };
        let replace = || self.engine.replace(&self.key, self.hash, message, weight);
        let replaced = self.engine.inside(replace);
        self.engine.wake_watchdog();
        replaced.map_err(|(message, why)| refusal(why, message))
    }
}

fn refusal<M>(why: Undecidable, message: M) -> LaneError<M> {
    match why {
        Undecidable::Nothing => LaneError::NotHalted(message),
        Undecidable::InFlight => LaneError::InFlight(message),
    }
}

impl<K, M, O, E> fmt::Debug for LaneControl<K, M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneControl")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}
