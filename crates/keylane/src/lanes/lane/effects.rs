//! What follows from a decision of a lane.

use super::super::item::Item;
use super::gate::Opening;
use super::plan::Gap;
use super::wake::Due;
use crate::clock::Instant;

/// What follows from a decision of a lane. The engine applies the first part under the lock of the
/// lane's shard, and the second part after the lock is released.
#[must_use = "messages, room, senders and timers wait for it"]
pub(crate) struct Effects<T: Item, H, G> {
    // Under the lock.
    /// The lane is empty and has nothing to wait for: it goes.
    pub(crate) removes: bool,
    /// What the key of a lane that goes remembers.
    pub(crate) memory: Memory,
    /// Messages that are no load any more.
    pub(crate) stall: Stall,
    /// Lanes that wait for a decision: one more, or one less.
    pub(crate) halted: Change,
    /// Lanes that are paused.
    pub(crate) paused: Change,
    /// Lanes at their capacity.
    pub(crate) full: Change,

    // Without it.
    pub(crate) out: Out<T, H>,
    pub(crate) opening: Opening<G>,
    /// The head that the lane held, which settles.
    pub(crate) taken: Option<(Box<H>, Taken)>,
    /// Messages that left the lane without having started.
    pub(crate) left: Few<(T, Left)>,
    /// What is left of messages that settle with another one.
    pub(crate) bodies: Few<T::Body>,
    /// Two messages to be merged by the user's function: the one that waited, and the newcomer.
    pub(crate) merge: Option<Box<(T, T)>>,
    /// Missing versions that were given up, or halted the lane.
    pub(crate) gap: Option<Gap>,
    /// A question to the version store, or a version to record there.
    pub(crate) store: Option<Store>,
    /// The timer of a lane that waits, or of the head that it holds.
    pub(crate) wake: Option<Due>,
    /// The timer of the first message that expires.
    pub(crate) expires_at: Option<Instant>,
    /// The timer of a gap: since when the version is missing, and until when it is waited for.
    pub(crate) gap_until: Option<(Instant, Instant)>,
    /// The acceptance of the oldest message that may wait for long from now on.
    pub(crate) stalled_since: Option<u64>,
    /// A timer of a head in backoff finds, or found, another state than it was armed for.
    pub(crate) stale: bool,
    /// How deep the lane is now.
    pub(crate) depth: usize,
    /// Whether the lane waits, or holds its head: then the end must hand back what is in it.
    pub(crate) holds: bool,
}

/// What goes into the ready queue.
#[derive(Debug)]
pub(crate) enum Out<T, H> {
    Nothing,
    /// The lane, to be asked for its next message.
    Lane,
    /// This message, which is the head now.
    Message(T),
    /// The head that the lane held.
    Head {
        head: Box<H>,
        /// It goes out as a first attempt.
        restarts: bool,
        /// Whether it is a retry that was not counted before.
        counts: bool,
    },
}

/// Why a message left its lane without having started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It was too late to start it.
    Expired,
    /// Its version was there already.
    Duplicate,
    /// Another message of its key waits, and stands for it.
    Declined,
    /// A newer message of its key stands for it.
    Superseded,
    /// It was pushed out of a full lane.
    Displaced,
    /// It met a full lane.
    Refused,
    /// It waited for versions that were given up.
    BehindGap,
    /// An operator skipped it.
    Skipped,
    /// An operator took everything out.
    Purged,
}

/// What an operator decided about a head that the lane held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Skipped,
    Purged,
}

/// What a key remembers when its lane is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The last version that was in line.
    pub(crate) version: Option<u64>,
    /// The word of its rate; 0 is a word that was never used.
    pub(crate) tat: u64,
}

/// Which messages of a lane are no load any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    None,
    /// All of it.
    Lane,
    /// The one that came too early, of this version.
    Early(u64),
    LaneAndEarly(u64),
    /// The first ones, which came back out of a batch, if those behind them are no load.
    Returned(usize),
}

impl Stall {
    /// All of the lane, in addition.
    pub(super) fn with_lane(self) -> Self {
        match self {
            Self::Early(version) | Self::LaneAndEarly(version) => Self::LaneAndEarly(version),
            Self::None | Self::Lane | Self::Returned(_) => Self::Lane,
        }
    }
}

/// A gauge goes up by one, or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Up,
    Down,
}

impl Change {
    pub(crate) fn up(&mut self) {
        *self = match self {
            Self::Down => Self::None,
            Self::None | Self::Up => Self::Up,
        };
    }

    pub(crate) fn down(&mut self) {
        *self = match self {
            Self::Up => Self::None,
            Self::None | Self::Down => Self::Down,
        };
    }
}

/// What a lane wants of the version store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Where the key stands.
    Load,
    /// That it records this version.
    Record(u64),
}

/// None, one, or more. One of them costs no allocation.
#[derive(Debug)]
pub(crate) struct Few<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Few<T> {
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            more: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, item: T) {
        match &self.first {
            None => self.first = Some(item),
            Some(_) => self.more.push(item),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

impl<T: Item, H, G> Effects<T, H, G> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            removes: false,
            memory: Memory {
                version: None,
                tat: 0,
            },
            stall: Stall::None,
            halted: Change::None,
            paused: Change::None,
            full: Change::None,
            out: Out::Nothing,
            opening: Opening::Nothing,
            taken: None,
            left: Few::new(),
            bodies: Few::new(),
            merge: None,
            gap: None,
            store: None,
            wake: None,
            expires_at: None,
            gap_until: None,
            stalled_since: None,
            stale: false,
            depth: 0,
            holds: false,
        }
    }

    /// Whether the lane's limit came into force: it became full, or turned a message away.
    pub(crate) fn overflows(&self) -> bool {
        let turned_away = |(_, left): &(T, Left)| matches!(left, Left::Displaced | Left::Refused);
        self.full == Change::Up || self.left.iter().any(turned_away)
    }
}
