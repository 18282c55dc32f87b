//! Messages of full lanes, which wait beside them so that those of other keys go on.
//!
//! Of a source that can read a position again, only the first messages of a full lane are kept. The
//! others are *deferred*: their slots stay, and what is behind them is read again when those in
//! front have gone in.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use keylane_rt::{NumberMap, OwnedSemaphorePermit};

use super::waiting::Waiting;
use crate::engine::Gate;
use keylane_rt::Slots;

/// How many messages of a full lane are kept at least. As many are read again at once. A source
/// that holds few keeps fewer: one lane is not to have all that it holds.
pub(super) const KEPT: usize = 64;

/// The share of what a source holds that one lane has beyond its capacity.
const SHARE: usize = 8;

/// How many messages of a full lane are kept by a source that holds so many.
pub(super) fn kept_of(most_held: usize) -> usize {
    (most_held / SHARE).clamp(2, KEPT)
}

/// One queue for each full lane, by the hash of its key: two keys with one hash wait together.
///
/// Where the number of lanes changes, the hash is that of the lane which the key had when the
/// queues were [made anew](Self::rehome), and not of the one that it has now: what comes later must
/// find those that wait.
pub(super) struct Aside<K, M> {
    queues: NumberMap<u64, Queue>,
    /// The keys of deferred messages by their slots, where keys may move to other lanes.
    moving: Option<NumberMap<u64, K>>,
    kept: Slots<Waiting<K, M>>,
    /// One wait for each queue whose first message is kept.
    gates: FuturesUnordered<BoxFuture<'static, (u64, Option<OwnedSemaphorePermit>)>>,
    len: usize,
    deferred: usize,
    /// The slots of those that were deferred since this was last asked for.
    just_deferred: Vec<u32>,
    /// Most messages that are deferred.
    defers: usize,
    /// How many of a queue are kept at least.
    keeps: usize,
    /// Queues with deferred messages close to their front.
    hungry: Vec<u64>,
    /// Queues that go on when the message of this slot has settled.
    followers: NumberMap<u64, u64>,
}

/// What waits for one lane, in order.
#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    deferred: usize,
    /// What the gate said when the first message was deferred.
    let_in: Option<Option<OwnedSemaphorePermit>>,
    is_hungry: bool,
    /// Whether it waits at a gate.
    waits: bool,
    /// How many messages it follows that have gone in and not settled.
    leaders: usize,
}

/// Small: a source may have millions of them.
enum Entry {
    /// Where it is kept.
    Kept(u32),
    /// The slot of a message that the source reads again.
    Deferred(u32),
}

/// What comes first in a queue.
pub(super) enum First<'a, K, M> {
    Kept(&'a Waiting<K, M>),
    Deferred,
}

impl<K, M> Aside<K, M> {
    /// With room for so many deferred messages. Of each queue so many are kept. `moves`: keys may
    /// move to other lanes.
    pub(super) fn new(defers: usize, keeps: usize, moves: bool) -> Self {
        Self {
            queues: NumberMap::default(),
            moving: moves.then(NumberMap::default),
            kept: Slots::new(),
            gates: FuturesUnordered::new(),
            len: 0,
            deferred: 0,
            just_deferred: Vec::new(),
            defers,
            keeps,
            hungry: Vec::new(),
            followers: NumberMap::default(),
        }
    }

    /// How many messages wait, those included that are deferred.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn deferred(&self) -> usize {
        self.deferred
    }

    /// The slots of those that were deferred since the last call: their messages are dropped.
    pub(super) fn take_deferred(&mut self) -> std::vec::Drain<'_, u32> {
        self.just_deferred.drain(..)
    }

    /// Whether messages of this key wait, so that others of it have to wait behind them.
    #[inline]
    pub(super) fn holds(&self, hash: u64) -> bool {
        self.len > 0 && self.queues.contains_key(&hash)
    }

    /// Puts a message behind the others of its lane, or defers it.
    pub(super) fn push(&mut self, hash: u64, waiting: Waiting<K, M>) {
        self.len += 1;
        let queue = self.queues.entry(hash).or_default();
        let defers = queue.entries.len() >= self.keeps && self.deferred < self.defers;
        queue.entries.push_back(match waiting.slot {
            Some(slot) if defers => {
                self.deferred += 1;
                self.just_deferred.push(slot);
                queue.deferred += 1;
                if let (Some(moving), Some(key)) = (&mut self.moving, waiting.key) {
                    moving.insert(slot.into(), key);
                }
                Entry::Deferred(slot)
            }
            _ => keep(&mut self.kept, waiting),
        });
    }

    /// The number of lanes has changed: makes the queues anew, one for each lane of now, each with
    /// its messages in their order. Returns the lanes. No queue waits at a gate then.
    pub(super) fn rehome(&mut self, lane: impl Fn(&K) -> u64) -> Vec<u64> {
        let old = std::mem::take(&mut self.queues);
        // What was let in, and not read yet, is let in again.
        self.gates.clear();
        self.followers.clear();
        self.hungry.clear();
        for entry in old.into_values().flat_map(|queue| queue.entries) {
            let key = match &entry {
                Entry::Kept(at) => self.kept.get(*at).and_then(|kept| kept.key.as_ref()),
                Entry::Deferred(slot) => {
                    let moving = self.moving.as_ref();
                    moving.and_then(|moving| moving.get(&u64::from(*slot)))
                }
            };
            let hash = key.map_or(0, &lane);
            let queue = self.queues.entry(hash).or_default();
            queue.deferred += usize::from(matches!(entry, Entry::Deferred(_)));
            queue.entries.push_back(entry);
        }
        for (hash, queue) in &mut self.queues {
            queue.note_hunger(*hash, self.keeps, &mut self.hungry);
        }
        self.queues.keys().copied().collect()
    }

    /// Waits at this gate for the first message of a key.
    pub(super) fn wait(&mut self, hash: u64, gate: Gate) {
        self.queues.entry(hash).or_default().waits = true;
        let passed = async move { (hash, gate.acquire_owned().await.ok()) };
        self.gates.push(Box::pin(passed));
    }

    /// A gate has let one in, or is gone.
    pub(super) fn poll_gate(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<(u64, Option<OwnedSemaphorePermit>)> {
        match self.gates.poll_next_unpin(cx) {
            Poll::Ready(Some((hash, permit))) => {
                if let Some(queue) = self.queues.get_mut(&hash) {
                    queue.waits = false;
                }
                Poll::Ready((hash, permit))
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// The first message of a key.
    pub(super) fn first(&self, hash: u64) -> Option<First<'_, K, M>> {
        match self.queues.get(&hash)?.entries.front()? {
            Entry::Kept(at) => self.kept.get(*at).map(First::Kept),
            Entry::Deferred(_) => Some(First::Deferred),
        }
    }

    /// Keeps what the gate has said until the first message of the key is read.
    pub(super) fn let_in_later(&mut self, hash: u64, permit: Option<OwnedSemaphorePermit>) {
        if let Some(queue) = self.queues.get_mut(&hash) {
            queue.let_in = Some(permit);
        }
    }

    /// Has the messages of a key follow when the message of this slot has settled.
    pub(super) fn follow_later(&mut self, hash: u64, slot: u32) {
        if let Some(queue) = self.queues.get_mut(&hash) {
            queue.leaders += 1;
            self.followers.insert(slot.into(), hash);
        }
    }

    /// Whose messages follow the one of this slot, which has settled.
    #[inline]
    pub(super) fn follower_of(&mut self, slot: u32) -> Option<u64> {
        if self.followers.is_empty() {
            return None;
        }
        let hash = self.followers.remove(&slot.into())?;
        let queue = self.queues.get_mut(&hash)?;
        // It may be another queue of that key by now.
        queue.leaders = queue.leaders.saturating_sub(1);
        (!queue.waits).then_some(hash)
    }

    /// How many messages the first ones of a key follow.
    pub(super) fn leaders(&self, hash: u64) -> usize {
        self.queues.get(&hash).map_or(0, |queue| queue.leaders)
    }

    /// Takes the first message of a key, if it is kept.
    pub(super) fn pop(&mut self, hash: u64) -> Option<Waiting<K, M>> {
        let queue = self.queues.get_mut(&hash)?;
        let Some(Entry::Kept(at)) = queue.entries.front() else {
            return None;
        };
        let waiting = self.kept.remove(*at);
        queue.entries.pop_front();
        self.len -= 1;
        if queue.entries.is_empty() {
            self.queues.remove(&hash);
        } else {
            queue.note_hunger(hash, self.keeps, &mut self.hungry);
        }
        waiting
    }

    /// Takes the first messages of a key, as many as are kept in a row, up to `most` that have
    /// slots. Returns the slot of the first of them that has one.
    pub(super) fn take_first(
        &mut self,
        hash: u64,
        mut most: usize,
        out: &mut VecDeque<Waiting<K, M>>,
    ) -> Option<u32> {
        let queue = self.queues.get_mut(&hash)?;
        let (mut leader, before) = (None, queue.entries.len());
        while let Some(&Entry::Kept(at)) = queue.entries.front() {
            let slot = self.kept.get(at).and_then(|first| first.slot);
            if slot.is_some() {
                if most == 0 {
                    break;
                }
                most -= 1;
                leader = leader.or(slot);
            }
            queue.entries.pop_front();
            out.extend(self.kept.remove(at));
        }
        self.len -= before - queue.entries.len();
        if queue.entries.is_empty() {
            self.queues.remove(&hash);
        } else {
            queue.note_hunger(hash, self.keeps, &mut self.hungry);
        }
        leader
    }

    /// A key whose deferred messages are to be read, and the slots of the first of them.
    pub(super) fn next_hungry(&mut self) -> Option<(u64, Vec<u32>)> {
        while let Some(hash) = self.hungry.pop() {
            let Some(queue) = self.queues.get_mut(&hash) else {
                continue;
            };
            queue.is_hungry = false;
            let slots: Vec<u32> = queue.deferred_slots(self.keeps).take(self.keeps).collect();
            if !slots.is_empty() {
                return Some((hash, slots));
            }
        }
        None
    }

    /// A deferred message was read again. Its slot names it; its queue may have gone back
    /// meanwhile.
    pub(super) fn fill(&mut self, hash: u64, waiting: Waiting<K, M>) {
        let Some(queue) = self.queues.get_mut(&hash) else {
            return;
        };
        let Some(slot) = waiting.slot else { return };
        let is_it = |entry: &&mut Entry| matches!(entry, Entry::Deferred(at) if *at == slot);
        if let Some(entry) = queue.entries.iter_mut().find(is_it) {
            *entry = keep(&mut self.kept, waiting);
            queue.deferred -= 1;
            self.deferred -= 1;
            forget(&mut self.moving, slot);
            queue.note_hunger(hash, self.keeps, &mut self.hungry);
        }
    }

    /// What the gate of a queue said that could not be followed, if it can be now.
    pub(super) fn take_let_in(&mut self, hash: u64) -> Option<Option<OwnedSemaphorePermit>> {
        let queue = self.queues.get_mut(&hash)?;
        match queue.entries.front() {
            Some(Entry::Kept(_)) => queue.let_in.take(),
            Some(Entry::Deferred(_)) | None => None,
        }
    }

    /// Takes out what is chosen of one key, of what is kept.
    pub(super) fn extract_of(
        &mut self,
        hash: u64,
        chosen: impl Fn(&Waiting<K, M>) -> bool,
    ) -> Vec<Waiting<K, M>> {
        let Some(queue) = self.queues.get_mut(&hash) else {
            return Vec::new();
        };
        let mut out = Vec::new();
        for _ in 0..queue.entries.len() {
            match queue.entries.pop_front() {
                Some(Entry::Kept(at)) if self.kept.get(at).is_some_and(&chosen) => {
                    out.extend(self.kept.remove(at));
                }
                Some(entry) => queue.entries.push_back(entry),
                None => {}
            }
        }
        self.len -= out.len();
        if queue.entries.is_empty() {
            self.queues.remove(&hash);
        }
        out
    }

    /// Takes out what is chosen, by its slot. A queue that is empty then is gone, and its wait
    /// finds nothing. Returns the keys whose first messages may go in now.
    pub(super) fn extract(
        &mut self,
        mut chosen: impl FnMut(Option<u32>) -> bool,
        slots: &mut Vec<u32>,
        out: &mut Vec<Waiting<K, M>>,
    ) -> Vec<u64> {
        let mut moved = Vec::new();
        for (hash, queue) in &mut self.queues {
            let before = queue.entries.len();
            for _ in 0..before {
                match queue.entries.pop_front() {
                    Some(Entry::Kept(at)) => {
                        let kept = self.kept.get(at);
                        if kept.is_some_and(|waiting| chosen(waiting.slot)) {
                            out.extend(self.kept.remove(at));
                        } else {
                            queue.entries.push_back(Entry::Kept(at));
                        }
                    }
                    Some(Entry::Deferred(slot)) if chosen(Some(slot)) => {
                        queue.deferred -= 1;
                        forget(&mut self.moving, slot);
                        slots.push(slot);
                    }
                    Some(entry) => queue.entries.push_back(entry),
                    None => {}
                }
            }
            if queue.entries.len() < before {
                queue.note_hunger(*hash, self.keeps, &mut self.hungry);
                moved.extend(queue.let_in.is_some().then_some(*hash));
            }
        }
        self.queues.retain(|_, queue| !queue.entries.is_empty());
        self.len = self.queues.values().map(|queue| queue.entries.len()).sum();
        self.deferred = self.queues.values().map(|queue| queue.deferred).sum();
        moved
    }
}

/// A message is not deferred any more.
fn forget<K>(moving: &mut Option<NumberMap<u64, K>>, slot: u32) {
    if let Some(moving) = moving {
        moving.remove(&u64::from(slot));
    }
}

/// Keeps a message for its queue.
fn keep<K, M>(kept: &mut Slots<Waiting<K, M>>, waiting: Waiting<K, M>) -> Entry {
    let at = kept.insert(waiting);
    Entry::Kept(at.expect("no more are here than a source may hold"))
}

impl Queue {
    /// Half of the kept messages have gone in: it is time to read the next ones.
    fn note_hunger(&mut self, hash: u64, keeps: usize, hungry: &mut Vec<u64>) {
        if self.deferred == 0 || self.is_hungry {
            return;
        }
        let is_deferred = |entry: &Entry| matches!(entry, Entry::Deferred(_));
        if self.entries.iter().take(keeps / 2).any(is_deferred) {
            self.is_hungry = true;
            hungry.push(hash);
        }
    }

    fn deferred_slots(&self, keeps: usize) -> impl Iterator<Item = u32> {
        let near = self.entries.iter().take(2 * keeps);
        near.filter_map(|entry| match entry {
            Entry::Deferred(slot) => Some(*slot),
            Entry::Kept(_) => None,
        })
    }
}
