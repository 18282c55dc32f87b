//! One key: why it waits, and what to do about it.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::handle::Address;
use crate::clock;
use crate::engine::{Engine, Waiting};
use crate::error::LaneError;
use crate::rt::Arc;

/// The lane of one key, whether or not it exists at the moment.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use keylane::{Dispatcher, Exhausted, LaneState};
///
/// let ledger = Dispatcher::builder(|entry: &i64| entry.abs() % 10)
///     .on_exhausted(Exhausted::Halt)
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
pub struct Lane<K, M, O, E> {
    pub(super) engine: Arc<Engine<K, M, O, E>>,
    pub(super) address: Arc<Address<K, M>>,
    pub(super) key: K,
    pub(super) hash: u64,
}

/// What a lane looked like a moment ago.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Messages of this key that are accepted and not settled, the head included.
    pub depth: usize,
    /// What the head is doing, and so why the others wait.
    pub state: LaneState,
    /// How long the oldest message behind the head has waited.
    pub oldest_waiting: Option<Duration>,
    /// Whether the lane is at its capacity.
    pub full: bool,
}

/// What the head of a lane is doing.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneState {
    /// It waits for a runner, or its handler is in its first poll.
    Ready,
    /// Its handler, or the dead-letter sink, has it.
    Running {
        /// Which attempt it is, from 1.
        attempt: u32,
        /// How long it has been waiting inside the handler.
        lasted: Duration,
    },
    /// It failed, and waits for its next attempt.
    Backoff {
        /// Which attempt comes next.
        next_attempt: u32,
        /// How long until then.
        due_in: Duration,
        /// The last failure.
        why: String,
    },
    /// It was given up on, and the dead-letter sink did not take it yet.
    DeadLettering {
        /// How often the sink has refused.
        refusals: u32,
        /// How long until the sink is asked again.
        due_in: Duration,
        /// The sink's last error.
        why: String,
    },
    /// It was given up on, and the lane waits for a decision.
    Halted {
        /// How often it was tried.
        attempts: u32,
        /// The last failure.
        why: String,
    },
}

impl<K, M, O, E> Lane<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// The key of this lane.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// How deep the lane is, and why it waits; `None` if nothing of this key is here.
    pub fn inspect(&self) -> Option<LaneView> {
        let now = clock::now();
        self.engine
            .inspect(&self.key, self.hash, now)
            .map(|seen| LaneView {
                depth: seen.depth,
                oldest_waiting: seen.oldest_waiting,
                full: seen.full,
                state: match seen.waiting {
                    Waiting::Runner => LaneState::Ready,
                    Waiting::Handler { attempt, lasted } => LaneState::Running { attempt, lasted },
                    Waiting::Retry {
                        next_attempt,
                        due_in,
                        why,
                    } => LaneState::Backoff {
                        next_attempt,
                        due_in,
                        why,
                    },
                    Waiting::Sink {
                        refusals,
                        due_in,
                        why,
                    } => LaneState::DeadLettering {
                        refusals,
                        due_in,
                        why,
                    },
                    Waiting::Decision { attempts, why } => LaneState::Halted { attempts, why },
                },
            })
    }

    /// Tries the halted head again, from attempt 1.
    ///
    /// # Errors
    ///
    /// [`LaneError::NotHalted`] if there is nothing to decide.
    pub fn resume(&self) -> Result<(), LaneError> {
        if self.engine.resume(&self.key, self.hash) {
            Ok(())
        } else {
            Err(LaneError::NotHalted(()))
        }
    }

    /// Settles the halted head as failed and goes on with the message behind it.
    ///
    /// # Errors
    ///
    /// [`LaneError::NotHalted`] if there is nothing to decide.
    pub fn skip(&self) -> Result<(), LaneError> {
        if self.engine.skip(&self.key, self.hash) {
            Ok(())
        } else {
            Err(LaneError::NotHalted(()))
        }
    }

    /// Puts another message in the place of the halted head, and tries it from attempt 1.
    ///
    /// Returns the message that was there. Its receipt now stands for the new one.
    ///
    /// # Errors
    ///
    /// [`LaneError::NotHalted`] if there is nothing to decide, [`LaneError::OtherKey`] for a message
    /// of another key, [`LaneError::TooLarge`] for one above the capacity in bytes. Each gives it
    /// back.
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
        self.engine
            .replace(&self.key, self.hash, message, weight)
            .map_err(LaneError::NotHalted)
    }
}

impl<K, M, O, E> fmt::Debug for Lane<K, M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}
