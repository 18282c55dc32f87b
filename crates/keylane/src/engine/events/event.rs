//! One event of a dispatcher.

use std::time::Duration;

use tokio::time::Instant;

use crate::engine::settings::Overflow;

/// An event that an operator may need to know at once.
///
/// A condition that ends by itself, such as a retry or a full lane that empties, is no event:
/// [`stats`](crate::Dispatcher::stats) counts it. An operator's own action, such as resuming a
/// lane, is no event either.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<K> {
    /// The dead-letter sink has accepted a message that was given up on.
    #[non_exhaustive]
    DeadLettered {
        /// The key, or `None` for a keyless message.
        key: Option<K>,
        /// The number of attempts; 0 if its lane was full, or versions before it are missing.
        attempts: u32,
        /// The last failure, cut to 256 characters.
        why: String,
        /// The time of the event.
        at: Instant,
    },
    /// A message was given up on, and is not kept.
    #[non_exhaustive]
    Discarded {
        /// The key, or `None` for a keyless message.
        key: Option<K>,
        /// The number of attempts.
        attempts: u32,
        /// The last failure, cut to 256 characters.
        why: String,
        /// The time of the event.
        at: Instant,
    },
    /// A lane has stopped until an operator calls [`resume`](crate::LaneControl::resume), `skip` or
    /// `replace`.
    #[non_exhaustive]
    Halted {
        /// The key.
        key: K,
        /// The number of attempts at its head.
        attempts: u32,
        /// The last failure, cut to 256 characters.
        why: String,
        /// The time of the event.
        at: Instant,
    },
    /// Versions of a key did not come.
    #[non_exhaustive]
    Gap {
        /// The key.
        key: K,
        /// The first version that is missing.
        first: u64,
        /// The last version that is missing.
        last: u64,
        /// The time at which the gap was detected.
        at: Instant,
    },
    /// A lane is at its capacity.
    ///
    /// With `Wait` and `Reject`: once when it becomes full, and again only after it has been half
    /// empty. With `DropOldest` and `DeadLetter`: for each message that is lost to the limit.
    #[non_exhaustive]
    Overflowed {
        /// The key.
        key: K,
        /// The policy at the limit.
        policy: Overflow,
        /// The time of the event.
        at: Instant,
    },
    /// Something happened to a source that is [consumed](crate::Dispatcher::consume).
    #[non_exhaustive]
    Source {
        /// The name of the source.
        source: String,
        /// What happened.
        what: SourceEvent,
        /// The time of the event.
        at: Instant,
    },
    /// Leases cannot be acquired, and the keys that need them wait
    /// ([`leased_by`](crate::Builder::leased_by)). One event for all keys together, and at most one
    /// in ten seconds.
    #[non_exhaustive]
    Unleased {
        /// The reason why the last lease was not acquired, cut to 256 characters.
        why: String,
        /// The time of the event.
        at: Instant,
    },
    /// A handler blocks its thread for longer than [`stuck_after`](crate::Builder::stuck_after).
    #[non_exhaustive]
    Stuck {
        /// The key; `None` for a keyless message.
        key: Option<K>,
        /// The time for which it has not returned, at least.
        lasted: Duration,
        /// The time at which the block was detected.
        at: Instant,
    },
}

/// An event of a source.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// It was opened, for the first time or again.
    Opened,
    /// It has failed, and will be opened again.
    #[non_exhaustive]
    Failed {
        /// The reason, cut to 256 characters.
        why: String,
    },
    /// It has not answered for this time, and will be opened again.
    #[non_exhaustive]
    Stalled {
        /// The time without an answer.
        lasted: Duration,
    },
    /// It has taken messages back.
    #[non_exhaustive]
    Revoked {
        /// The number of its messages that were here.
        messages: usize,
    },
    /// The source has lost messages, or attempts at them did not end in time: the source is not
    /// told any more how these messages settle.
    #[non_exhaustive]
    Overdue {
        /// The number of attempts that were dropped.
        messages: usize,
    },
    /// A part of it fails, or fails for another reason than before, and the others go on: a
    /// partition, a stream, a table.
    #[non_exhaustive]
    PartFailed {
        /// The name of the part, as the source writes it.
        part: String,
        /// The reason, cut to 256 characters.
        why: String,
    },
    /// A failed part works again.
    #[non_exhaustive]
    PartRecovered {
        /// The name of the part, as the source writes it.
        part: String,
        /// The time for which it failed.
        lasted: Duration,
    },
    /// Its intake has ended.
    Ended,
}

impl<K> Event<K> {
    /// Returns the key of the event, if there is one.
    pub fn key(&self) -> Option<&K> {
        match self {
            Self::DeadLettered { key, .. }
            | Self::Discarded { key, .. }
            | Self::Stuck { key, .. } => key.as_ref(),
            Self::Source { .. } | Self::Unleased { .. } => None,
            Self::Halted { key, .. } | Self::Gap { key, .. } | Self::Overflowed { key, .. } => {
                Some(key)
            }
        }
    }

    /// Returns the time of the event.
    pub fn at(&self) -> Instant {
        match self {
            Self::DeadLettered { at, .. }
            | Self::Discarded { at, .. }
            | Self::Stuck { at, .. }
            | Self::Halted { at, .. }
            | Self::Gap { at, .. }
            | Self::Overflowed { at, .. }
            | Self::Source { at, .. }
            | Self::Unleased { at, .. } => *at,
        }
    }

    /// Whether it is one of many: a flood of these must not push out events that come once.
    pub(super) fn is_common(&self) -> bool {
        matches!(self, Self::Overflowed { .. })
    }
}
