//! The lanes of a queue: every message behind the head of its key, and every head that is delayed.
//!
//! Here and nowhere else the queue calls the lanes. The key's `Hash`, `Eq` and `Clone` run under
//! the lock of a shard, and nothing else of the user's does.

use keylane_lanes::{AtLimit, Lane, LaneMap, Next, Offered};
use keylane_rt::Arc;
use keylane_rt::clock::Instant;
use keylane_rt::unwind::{Quiet, caught};

use super::delivery::{DelayedHead, Delivery, KeyedMessage};

type Parked<K, M> = Arc<KeyedMessage<K, M>>;
type Head<K, M> = DelayedHead<Parked<K, M>>;

/// Where a message has come in its lane.
pub(super) enum Placement {
    /// It is the head, and ready.
    Head,
    /// It waits behind the head.
    Parked,
    /// The lane is full, and has not taken it.
    Refused,
}

/// A key has panicked, or its lane is not found: the key is not equal to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrokenKey;

pub(super) struct Lanes<K, M> {
    map: LaneMap<Quiet<K>, Parked<K, M>, Head<K, M>, ()>,
    /// Most messages in one lane, its head included.
    capacity: usize,
}

impl<K: Eq + Clone, M> Lanes<K, M> {
    pub(super) fn new(shards: Option<usize>, capacity: usize) -> Self {
        Self {
            map: LaneMap::new(shards),
            capacity,
        }
    }

    /// Puts a message into the lane of its key. A panic of the key goes to the caller.
    #[inline]
    pub(super) fn offer(&self, item: &Parked<K, M>) -> Placement {
        let offered = self.map.enter(item.hash, &item.key, |lane| {
            let parked = Arc::clone(item);
            lane.park(parked, self.capacity, AtLimit::Refuse, self.map.spares())
        });
        match offered {
            None => Placement::Head,
            Some(Offered::Parked) => Placement::Parked,
            Some(Offered::Refused(_) | Offered::Displaced(_)) => Placement::Refused,
        }
    }

    /// The head of this lane has settled. Returns the next one, or removes the lane if it is empty.
    #[inline]
    pub(super) fn advance(
        &self,
        item: &KeyedMessage<K, M>,
    ) -> Result<Option<Parked<K, M>>, BrokenKey> {
        let advanced = caught(|| {
            self.map.advance(item.hash, &item.key, |lane| {
                let next: Next<_> = lane.finish();
                Some(((), next))
            })
        });
        match advanced {
            Ok(Some(((), next))) => Ok(next),
            Ok(None) | Err(_) => Err(BrokenKey),
        }
    }

    /// Gives a head back to its lane, which holds it until its delay is over.
    pub(super) fn delay(
        &self,
        item: &KeyedMessage<K, M>,
        head: Head<K, M>,
        until: Instant,
    ) -> Result<(), BrokenKey> {
        let head = Box::new(head);
        let delayed = caught(|| {
            self.map
                .with(item.hash, &item.key, |lane| lane.back_off(head, until))
        });
        match delayed {
            Ok(Some(())) => Ok(()),
            Ok(None) | Err(_) => Err(BrokenKey),
        }
    }

    /// Whether the lane holds a head until that time.
    pub(super) fn is_delayed(&self, item: &KeyedMessage<K, M>, until: Instant) -> bool {
        let is_delayed = |lane: &Lane<_, _, _>| lane.state().backs_off_until() == Some(until);
        let seen = caught(|| self.map.peek(item.hash, &item.key, is_delayed));
        seen == Ok(Some(true))
    }

    /// Takes the head out of its lane whose delay ends at that time, if it is still there.
    pub(super) fn take_due(
        &self,
        item: &KeyedMessage<K, M>,
        until: Instant,
    ) -> Result<Option<Delivery<Parked<K, M>>>, BrokenKey> {
        let head = caught(|| {
            self.map.with(item.hash, &item.key, |lane| {
                (lane.state().backs_off_until() == Some(until)).then(|| lane.due())
            })
        });
        match head {
            Ok(head) => Ok(head.flatten().map(|head| head.delivery)),
            Err(_) => Err(BrokenKey),
        }
    }

    /// Takes every message out of the lanes: for each lane the head that it holds, with the end of
    /// its delay, and then the messages behind the head. A lane whose head is ready or leased
    /// stays.
    ///
    /// `take` runs under the lock of a shard.
    pub(super) fn take_all(
        &self,
        mut take: impl FnMut(Option<(Head<K, M>, Instant)>, Vec<Parked<K, M>>),
    ) {
        self.map.sweep(|_, _, lane| {
            let until = lane.state().backs_off_until();
            let (head, parked) = lane.hand_back();
            let stays = head.is_none();
            take(head.map(|head| *head).zip(until), parked);
            stays
        });
    }
}
