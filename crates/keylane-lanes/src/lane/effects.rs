//! The effects of a decision of a lane.

use std::fmt;

use keylane_rt::clock::Instant;

use super::super::gate::Opening;
use super::super::item::Item;

/// The effects of a decision of a lane. The engine applies the first part under the lock of the
/// lane's shard, and the second part after the lock is released. Under the lock it may take the
/// timer of an expiry back.
///
/// The caller makes it, and the lane writes into it: a returned value would be moved several times
/// for each message. Effects that few decisions have are behind one pointer.
#[must_use = "messages, room, senders and timers wait for it"]
pub struct Effects<T: Item, H, G> {
    // Under the lock.
    /// The lane is empty and has nothing to wait for: it goes, and its key remembers
    /// [`Lane::memory`](super::Lane::memory).
    pub removes: bool,
    /// Messages that do not count against the capacity any more.
    pub stall: Stall,
    /// Lanes that wait for a decision: one more, or one less.
    pub halted: Change,
    /// Lanes that are paused.
    pub paused: Change,
    /// Lanes at their capacity.
    pub full: Change,

    // Without it.
    /// The message that leaves the lane next.
    pub out: Out<T, H>,
    /// The effect on the senders at the gate of a full lane.
    pub opening: Opening<G>,
    /// Messages that left the lane without having started.
    pub left: Few<(T, Left)>,
    /// The timer of a lane that waits, or of the head that it holds.
    pub wake: Option<Due>,
    /// The timer of the first message that expires, in nanoseconds since the epoch of the rules.
    pub expires_at: Option<u64>,
    /// Whether a timer of a head in backoff finds, or found, another state than it was armed for.
    pub stale: bool,
    /// The number of messages in the lane now.
    pub depth: usize,
    /// Whether the lane waits, or holds its head: then the end must hand back its messages.
    pub holds: bool,
    /// The effects that few decisions have; see [`rare_mut`](Self::rare_mut).
    pub rare: Option<Box<Rare<T, H>>>,
}

/// The effects that few decisions have. They are applied after the lock is released.
pub struct Rare<T: Item, H> {
    /// The head that the lane held, which settles.
    pub taken: Option<(Box<H>, Taken)>,
    /// The rest of messages that settle with another one.
    pub bodies: Vec<T::Body>,
    /// Messages that the user's function has to merge: the one that waited, and the newcomers, to
    /// be merged into it one after the other.
    pub merge: Option<(T, Few<T>)>,
    /// Missing versions that were given up, or halted the lane.
    pub gap: Option<Gap>,
    /// A question to the version store, or a version to record there.
    pub store: Option<Store>,
    /// The timer of a gap: since when the version is missing, and until when the lane waits for it.
    pub gap_until: Option<(Instant, Instant)>,
    /// The acceptance of the oldest message that may wait for long from now on.
    pub stalled_since: Option<u64>,
}

// The messages are the user's: they are not shown, and need not be showable.
impl<T: Item, H, G> fmt::Debug for Effects<T, H, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects")
            .field("removes", &self.removes)
            .field("stall", &self.stall)
            .field("halted", &self.halted)
            .field("paused", &self.paused)
            .field("full", &self.full)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

impl<T: Item, H> fmt::Debug for Rare<T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rare")
            .field("gap", &self.gap)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl<T: Item, H, G> Default for Effects<T, H, G> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Item, H> Default for Rare<T, H> {
    fn default() -> Self {
        Self {
            taken: None,
            bodies: Vec::new(),
            merge: None,
            gap: None,
            store: None,
            gap_until: None,
            stalled_since: None,
        }
    }
}

/// The next entry of the ready queue.
#[derive(Debug)]
pub enum Out<T, H> {
    /// Nothing goes out.
    Nothing,
    /// The lane, to be asked for its next message. It is as urgent as the first one in it.
    Lane {
        /// Its class in the ready queue.
        class: u8,
    },
    /// This message, which is the head now.
    Message(T),
    /// The head that the lane held.
    Head {
        /// The head, with what is known of it.
        head: Box<H>,
        /// It goes out as a first attempt.
        restarts: bool,
        /// Whether it is a retry that was not counted before.
        counts: bool,
    },
}

/// The purpose of a timer. Timers are not taken back: one that finds another state does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The head waits for its next attempt until then.
    Backoff(Instant),
    /// The lane waits until then.
    Wait(Instant),
    /// A message in the lane expires then, in nanoseconds since the epoch of the rules.
    Expiry(u64),
    /// A version is missing since then.
    Gap(Instant),
}

/// The reason why a message left its lane without having started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It was too late to start it.
    Expired,
    /// Its version came before, and has been handled.
    Duplicate,
    /// Its version came before, and may still be on its way.
    Repeated,
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
    /// An operator purged the lane.
    Purged,
    /// Its source has taken it back.
    Revoked,
}

/// The reason why a head that the lane held was taken out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// An operator skipped it.
    Skipped,
    /// An operator purged the lane.
    Purged,
    /// Its source has taken it back.
    Revoked,
}

/// The memory of a key whose lane is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The last version that was in line.
    pub version: Option<u64>,
    /// The word of its rate; 0 is a word that was never used.
    pub tat: u64,
}

/// The messages of a lane that do not count against the capacity any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// There is no change.
    None,
    /// All messages of the lane.
    Lane,
    /// The message that came too early, of this version.
    Early(u64),
    /// Both: the lane has one, and this version came early.
    LaneAndEarly(u64),
    /// The first messages, which came back out of a batch, if those behind them do not count.
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

/// A change of a gauge, by one up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is no change.
    None,
    /// One more stalls.
    Up,
    /// One fewer stalls.
    Down,
}

impl Change {
    /// Adds one.
    pub fn up(&mut self) {
        *self = match self {
            Self::Down => Self::None,
            Self::None | Self::Up => Self::Up,
        };
    }

    /// Subtracts one.
    pub fn down(&mut self) {
        *self = match self {
            Self::Up => Self::None,
            Self::None | Self::Down => Self::Down,
        };
    }
}

/// A request to the version store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Load the last version of the key.
    Load,
    /// Record this version.
    Record(u64),
}

/// The versions that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first version that is missing.
    pub first: u64,
    /// The last version that is missing.
    pub last: u64,
    /// The time since which it is missing.
    pub since: Instant,
}

/// None, one, or more. One of them costs no allocation.
#[derive(Debug)]
pub enum Few<T> {
    /// None.
    None,
    /// A single one, without an allocation.
    One(T),
    /// More than one.
    More(Vec<T>),
}

impl<T> Few<T> {
    /// Adds an item.
    #[inline]
    pub fn push(&mut self, item: T) {
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(item),
            Self::One(first) => Self::More(vec![first, item]),
            Self::More(mut all) => {
                all.push(item);
                Self::More(all)
            }
        };
    }

    /// Returns whether there is no item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns all items, in order.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::More(all) => all,
        }
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, more) = match self {
            Self::None => (None, Vec::new()),
            Self::One(one) => (Some(one), Vec::new()),
            Self::More(all) => (None, all),
        };
        one.into_iter().chain(more)
    }
}

impl<T: Item, H, G> Effects<T, H, G> {
    /// Returns a value without items.
    #[inline]
    pub const fn new() -> Self {
        Self {
            removes: false,
            stall: Stall::None,
            halted: Change::None,
            paused: Change::None,
            full: Change::None,
            out: Out::Nothing,
            opening: Opening::Nothing,
            left: Few::None,
            wake: None,
            expires_at: None,
            stale: false,
            depth: 0,
            holds: false,
            rare: None,
        }
    }

    /// Returns the effects that few decisions have, and makes them if there are none yet.
    #[cold]
    pub fn rare_mut(&mut self) -> &mut Rare<T, H> {
        self.rare.get_or_insert_default()
    }

    /// Takes the messages that have to become one.
    pub fn take_merge(&mut self) -> Option<(T, Few<T>)> {
        self.rare.as_mut()?.merge.take()
    }

    /// Returns the number of messages that leave the lane without having started, its head
    /// included.
    pub fn leaving(&self) -> usize {
        let taken = self.rare.as_ref().and_then(|rare| rare.taken.as_ref());
        self.left.as_slice().len() + usize::from(taken.is_some())
    }

    /// Returns whether there is something to apply under the lock, if the lane has nothing to
    /// remember.
    #[inline]
    pub fn needs_lock(&self) -> bool {
        let changes = |change: Change| change != Change::None;
        self.rare.is_some()
            || self.stall != Stall::None
            || changes(self.halted) | changes(self.paused) | changes(self.full)
    }

    /// Returns whether there are effects besides an entry of the ready queue.
    #[inline]
    pub fn has_others(&self) -> bool {
        self.rare.is_some()
            || !matches!(self.opening, Opening::Nothing)
            || self.wake.is_some()
            || self.stale
            || self.full == Change::Up
            || !self.left.is_empty()
    }

    /// Returns whether the lane's limit came into force: it became full, or turned a message away.
    pub fn overflows(&self) -> bool {
        let turned_away = |(_, left): &(T, Left)| matches!(left, Left::Displaced | Left::Refused);
        self.full == Change::Up || self.left.as_slice().iter().any(turned_away)
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::super::testing::{Message, TestGate};
    use super::*;

    #[test]
    fn up_and_down_is_nothing() {
        let mut change = Change::None;
        let mut seen = Vec::new();
        for goes_up in [true, true, false, false, false, true] {
            match goes_up {
                true => change.up(),
                false => change.down(),
            }
            seen.push(change);
        }
        use Change::{Down, None, Up};
        assert_eq!(seen, [Up, Up, None, Down, Down, None]);
    }

    #[test]
    fn the_lane_comes_in_addition() {
        let stalls = [
            Stall::None,
            Stall::Lane,
            Stall::Returned(2),
            Stall::Early(3),
            Stall::LaneAndEarly(4),
        ];
        let (lane, early) = (Stall::Lane, Stall::LaneAndEarly);
        assert_eq!(
            stalls.map(Stall::with_lane),
            [lane, lane, lane, early(3), early(4)]
        );
    }

    #[test]
    fn a_few_come_out_in_their_order() {
        let mut few = Few::None;
        assert!(few.is_empty());
        for item in 1..=3 {
            few.push(item);
            assert!(!few.is_empty());
        }
        assert_eq!(few.as_slice(), [1, 2, 3]);
        assert_eq!(few.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }

    type TestEffects = Effects<Message, Message, TestGate>;

    /// Whether something is to be done under the lock, and besides the ready queue.
    fn follows(decide: impl FnOnce(&mut TestEffects)) -> (bool, bool) {
        let mut effects = Effects::new();
        decide(&mut effects);
        (effects.needs_lock(), effects.has_others())
    }

    #[test]
    fn what_follows_besides_the_ready_queue_is_found() {
        assert_eq!(follows(|_| {}), (false, false));
        assert_eq!(follows(|effects| effects.removes = true), (false, false));
        // Under the lock.
        assert_eq!(
            follows(|effects| effects.stall = Stall::Lane),
            (true, false)
        );
        assert_eq!(follows(|effects| effects.halted.up()), (true, false));
        assert_eq!(follows(|effects| effects.paused.down()), (true, false));
        assert_eq!(follows(|effects| effects.full.down()), (true, false));
        assert_eq!(follows(|effects| effects.full.up()), (true, true));
        let two = |effects: &mut TestEffects| {
            effects.halted.up();
            effects.paused.up();
        };
        assert_eq!(follows(two), (true, false));
        let others = |effects: &mut TestEffects| {
            effects.paused.up();
            effects.full.down();
        };
        assert_eq!(follows(others), (true, false));
        // Without it.
        let now = keylane_rt::clock::now();
        assert_eq!(
            follows(|effects| effects.wake = Some(Due::Wait(now))),
            (false, true)
        );
        assert_eq!(follows(|effects| effects.stale = true), (false, true));
        let left = || (Message::new(1), Left::Purged);
        assert_eq!(follows(|effects| effects.left.push(left())), (false, true));
        assert_eq!(
            follows(|effects| effects.rare_mut().store = None),
            (true, true)
        );
    }

    #[test]
    fn what_leaves_is_counted() {
        let mut effects = TestEffects::new();
        assert_eq!(effects.leaving(), 0);
        for count in 1..=2 {
            effects.left.push((Message::new(count), Left::Purged));
            assert_eq!(effects.leaving(), count as usize);
        }
        effects.rare_mut().gap = None;
        assert_eq!(effects.leaving(), 2);
        effects.rare_mut().taken = Some((Box::new(Message::new(3)), Taken::Purged));
        assert_eq!(effects.leaving(), 3);
        assert!(!TestEffects::new().has_others());
        let mut closes = TestEffects::new();
        let gate = <TestGate as crate::Gate>::with_permits(1);
        closes.opening = Opening::Close(gate);
        assert!(closes.has_others() && !closes.needs_lock());
    }
}
