//! One key: why it waits, and what to do about it.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::address::Address;
use super::handle::Dispatcher;
use crate::engine::{Engine, Waiting};
use crate::error::LaneError;
use crate::lanes::Undecidable;
use crate::rt::Arc;
use crate::types::Of;

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// The lane of a key, to look at or to act on. The lane need not exist.
    pub fn lane(&self, key: &K) -> Lane<K, M, O, E> {
        let hash = (self.address.hash)(key);
        Lane {
            engine: Arc::clone(&self.engine),
            address: Arc::clone(&self.address),
            key: key.clone(),
            hash,
        }
    }

    /// How deep the lane of a key is, and why it waits; `None` if nothing of this key is here.
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
    engine: Arc<Engine<Of<K, M, O, E>>>,
    address: Arc<Address<K, M>>,
    key: K,
    hash: u64,
}

/// What a lane looked like a moment ago.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Messages of this key that are accepted and not settled, the head included.
    pub depth: usize,
    /// What the head is doing, and so why the others wait.
    pub state: LaneState,
    /// How long ago the head was accepted; `None` for the moment in which a runner takes it, and
    /// where there is none.
    pub head_age: Option<Duration>,
    /// How long the oldest message behind the head has waited; `None` if only messages are here
    /// that wait for a missing version.
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
    /// An operator has paused the lane: it waits for [`Lane::resume`].
    Paused,
    /// Its key is above [`rate_per_key`](crate::Builder::rate_per_key).
    RateLimited {
        /// How long until it may start.
        due_in: Duration,
    },
    /// It is not to start yet ([`send_when`](crate::Dispatcher::send_when)).
    Delayed {
        /// How long until its time.
        due_in: Duration,
    },
    /// It waits for more messages to come into its batch.
    Lingering {
        /// How long until it starts without them.
        due_in: Duration,
    },
    /// It waits for the [`VersionStore`](crate::VersionStore) to say where the key stands.
    Loading,
    /// Versions before it are missing.
    Gap {
        /// The first missing version.
        first: u64,
        /// The last missing version before the next that is here.
        last: u64,
        /// How long they are still waited for; `None` if the lane is halted by them.
        due_in: Option<Duration>,
    },
    /// Nothing of the key is here; the lane remembers its rate.
    Idle,
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
        let now = self.engine.now();
        self.engine
            .inspect(&self.key, self.hash, now)
            .map(|seen| LaneView {
                depth: seen.depth,
                head_age: seen.head_age,
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
                    Waiting::Resume => LaneState::Paused,
                    Waiting::Rate { due_in } => LaneState::RateLimited { due_in },
                    Waiting::Time { due_in } => LaneState::Delayed { due_in },
                    Waiting::Batch { due_in } => LaneState::Lingering { due_in },
                    Waiting::Store => LaneState::Loading,
                    Waiting::Versions {
                        first,
                        last,
                        due_in,
                    } => LaneState::Gap {
                        first,
                        last,
                        due_in,
                    },
                    Waiting::Messages => LaneState::Idle,
                },
            })
    }

    /// Lets a paused lane go on; tries a halted head again, from attempt 1; waits once more for
    /// missing versions. A lane that is paused and halted is resumed twice.
    ///
    /// # Errors
    ///
    /// [`LaneError::NotHalted`] if there is nothing to decide.
    pub fn resume(&self) -> Result<(), LaneError> {
        let resume = || self.engine.resume(&self.key, self.hash);
        let resumed = self.engine.inside(resume);
        resumed.map_err(|why| refusal(why, ()))
    }

    /// Settles the head as failed and goes on with the message behind it: the head that is halted,
    /// waits for its next attempt, or has not started. Where versions are missing, they are given
    /// up.
    ///
    /// In a paused lane it takes the first message that could start; to give up missing versions,
    /// [`resume`](Self::resume) first.
    ///
    /// # Errors
    ///
    /// [`LaneError::NotHalted`] if there is nothing to decide, [`LaneError::InFlight`] if the head
    /// is in flight or on its way to a runner ([`LaneState::Ready`]).
    pub fn skip(&self) -> Result<(), LaneError> {
        let skip = || self.engine.skip(&self.key, self.hash);
        let skipped = self.engine.inside(skip);
        skipped.map_err(|why| refusal(why, ()))
    }

    /// Settles everything of this key that is not in flight, with
    /// [`ReceiptError::Purged`](crate::ReceiptError::Purged). Returns how many messages that were.
    ///
    /// A head on its way to a runner ([`LaneState::Ready`]) is left and will be handled. Messages
    /// that were merged into another count as one with it. Those that [others may
    /// pass](crate::Delayed::Pass) are not here yet. The report counts what was purged as
    /// discarded.
    pub fn purge(&self) -> usize {
        let purge = || self.engine.purge(&self.key, self.hash);
        self.engine.inside(purge)
    }

    /// Tries the head that waits for its next attempt now, or brings the dead letter to its sink
    /// now.
    ///
    /// # Errors
    ///
    /// [`LaneError::NotHalted`] if nothing of this key waits for an attempt, or the lane is paused,
    /// [`LaneError::InFlight`] if it is under way.
    pub fn retry_now(&self) -> Result<(), LaneError> {
        let retry = || self.engine.retry_now(&self.key, self.hash);
        let retried = self.engine.inside(retry);
        retried.map_err(|why| refusal(why, ()))
    }

    /// Lets nothing of this key start until [`resume`](Self::resume).
    ///
    /// What is in flight goes on to its end, dead letter included, and does not start another
    /// attempt. Messages still come in, up to the limit of the lane. A lane that is paused when the
    /// dispatcher is drained is handed back. Pausing twice is pausing once.
    pub fn pause(&self) {
        let pause = || self.engine.pause(&self.key, self.hash);
        self.engine.inside(pause);
    }

    /// Puts another message in the place of the head, and tries it from attempt 1: the head that is
    /// halted, waits for its next attempt, or has not started.
    ///
    /// Returns the message that was there. Its receipt now stands for the new one.
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
        replaced.map_err(|(message, why)| refusal(why, message))
    }
}

fn refusal<M>(why: Undecidable, message: M) -> LaneError<M> {
    match why {
        Undecidable::Nothing => LaneError::NotHalted(message),
        Undecidable::InFlight => LaneError::InFlight(message),
    }
}

impl<K, M, O, E> fmt::Debug for Lane<K, M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}
