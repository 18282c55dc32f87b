//! One thing that happened.

use std::time::Duration;

use tokio::time::Instant;

use crate::engine::settings::Overflow;

/// Something an operator may want to know at once.
///
/// What ends by itself, such as a retry or a full lane that empties, is no event:
/// [`stats`](crate::Dispatcher::stats) counts it. What an operator does, such as resuming a lane,
/// is none either.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<K> {
    /// The dead-letter sink has accepted a message that was given up on.
    #[non_exhaustive]
    DeadLettered {
        /// Its key, or `None` for a keyless message.
        key: Option<K>,
        /// How often the handler was tried; 0 if its lane was full, or versions before it are missing.
        attempts: u32,
        /// Why the last attempt failed, cut to 256 characters.
        why: String,
        /// When it happened.
        at: Instant,
    },
    /// A message was given up on, and is not kept.
    #[non_exhaustive]
    Discarded {
        /// Its key, or `None` for a keyless message.
        key: Option<K>,
        /// How often the handler was tried.
        attempts: u32,
        /// Why the last attempt failed, cut to 256 characters.
        why: String,
        /// When it happened.
        at: Instant,
    },
    /// A lane has stopped until an operator calls [`resume`](crate::LaneControl::resume), `skip` or
    /// `replace`.
    #[non_exhaustive]
    Halted {
        /// Its key.
        key: K,
        /// How often its head was tried.
        attempts: u32,
        /// Why the last attempt failed, cut to 256 characters.
        why: String,
        /// When it happened.
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
        /// When it was found out.
        at: Instant,
    },
    /// A lane is at its capacity.
    ///
    /// With `Wait` and `Reject`: once when it becomes full, and again only after it has been half
    /// empty. With `DropOldest` and `DeadLetter`: for each message that this costs.
    #[non_exhaustive]
    Overflowed {
        /// Its key.
        key: K,
        /// What is done about it.
        policy: Overflow,
        /// When it happened.
        at: Instant,
    },
    /// Something happened to a source that is [consumed](crate::Dispatcher::consume).
    #[non_exhaustive]
    Source {
        /// The name of the source.
        source: String,
        /// What happened.
        what: SourceEvent,
        /// When it happened.
        at: Instant,
    },
    /// Leases cannot be acquired, and the keys that need them wait
    /// ([`leased_by`](crate::Builder::leased_by)). For all keys together, and at most once in ten
    /// seconds.
    #[non_exhaustive]
    Unleased {
        /// Why the last one was not acquired, cut to 256 characters.
        why: String,
        /// When it happened.
        at: Instant,
    },
    /// A handler blocks its thread for longer than [`stuck_after`](crate::Builder::stuck_after).
    #[non_exhaustive]
    Stuck {
        /// Its key; `None` for a keyless message.
        key: Option<K>,
        /// For how long it has not returned, at least.
        lasted: Duration,
        /// When it was found out.
        at: Instant,
    },
}

/// What happened to a source.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// It was opened, for the first time or again.
    Opened,
    /// It has failed, and will be opened again.
    #[non_exhaustive]
    Failed {
        /// Why, cut to 256 characters.
        why: String,
    },
    /// It has not answered for so long, and will be opened again.
    #[non_exhaustive]
    Stalled {
        /// For how long.
        lasted: Duration,
    },
    /// It has taken messages back.
    #[non_exhaustive]
    Revoked {
        /// How many of them were here.
        messages: usize,
    },
    /// The source has lost them, or attempts did not end in time: what settles of these messages is
    /// not told to the source any more.
    #[non_exhaustive]
    Overdue {
        /// How many attempts were dropped.
        messages: usize,
    },
    /// A part of it fails, or fails for another reason than before, and the others go on: a
    /// partition, a stream, a table.
    #[non_exhaustive]
    PartFailed {
        /// Its name, as the source writes it.
        part: String,
        /// Why, cut to 256 characters.
        why: String,
    },
    /// A part that has failed works again.
    #[non_exhaustive]
    PartRecovered {
        /// Its name, as the source writes it.
        part: String,
        /// For how long it has failed.
        lasted: Duration,
    },
    /// Its intake has ended.
    Ended,
}

impl<K> Event<K> {
    /// The key it is about, if there is one.
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

    /// When it happened.
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
