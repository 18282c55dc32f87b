//! What the engine reads from each message: its key, its size, and what the settings need.

use std::time::Duration;

use keylane_rt::Arc;

use crate::discipline::Version;

/// The user's functions of a message, boxed once.
pub(super) struct Address<K, M> {
    /// The key, and its hash in the same call; 0 without a key.
    pub(super) locate: Locate<K, M>,
    pub(super) hash: Box<dyn Fn(&K) -> u64 + Send + Sync>,
    pub(super) weigh: Option<Weigh<M>>,
    pub(super) version: Option<Arc<Version<M>>>,
    pub(super) lifetime: Option<Lifetime<M>>,
    pub(super) class: Option<ClassOf<M>>,
    /// Whether any of the last three is set, so that most messages are not asked one by one.
    pub(super) asks: bool,
}

pub(super) type Locate<K, M> = Box<dyn Fn(&M) -> (Option<K>, u64) + Send + Sync>;

/// The size of a message in bytes.
pub(super) type Weigh<M> = Box<dyn Fn(&M) -> usize + Send + Sync>;

/// How long a message may wait for its start.
pub(super) type Lifetime<M> = Box<dyn Fn(&M) -> Option<Duration> + Send + Sync>;

/// The class of a message, which is below the number of classes.
pub(super) type ClassOf<M> = Box<dyn Fn(&M) -> u8 + Send + Sync>;

/// A message above the capacity in bytes, which would wait for ever.
pub(super) struct TooLarge;

impl<K, M> Address<K, M> {
    /// The size of a message against the capacity in bytes; 0 where there is none.
    #[inline]
    pub(super) fn weigh(&self, message: &M, limit: Option<usize>) -> Result<u32, TooLarge> {
        let (Some(weigh), Some(limit)) = (&self.weigh, limit) else {
            return Ok(0);
        };
        let weight = weigh(message);
        match u32::try_from(weight) {
            Ok(fits) if weight <= limit => Ok(fits),
            _ => Err(TooLarge),
        }
    }
}
