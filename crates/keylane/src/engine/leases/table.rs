//! The leases of one dispatcher: which keys have one, and which wait for one.

use std::task::Context;

use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::Instant;
use crate::lease::LaneLease;
use crate::rt::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::rt::{Mutex, NumberMap, OwnLine, lock, mpsc};

/// A power of two.
const SHARDS: usize = 64;

/// By key: a lease that is held, or that was asked for.
pub(crate) struct LeaseTable<K> {
    /// By the hash of the key, so that runners seldom meet.
    shards: Box<[OwnLine<Mutex<Shard<K>>>]>,
    /// The channel to the task that acquires. There is one request for each entry at most.
    requests: mpsc::UnboundedSender<LeaseRequest<K>>,
    /// How many entries there were.
    count: AtomicUsize,
    /// No lease will be granted any more. Partner: the sweep of the router when the intake has
    /// ended; each of the two is set before the other one is read.
    is_closed: AtomicBool,
    /// The dispatcher has ended. Written before the shards are emptied, read under their locks.
    is_over: AtomicBool,
}

/// By hash. Hardly ever do two keys have the same.
type Shard<K> = NumberMap<u64, Bucket<K>>;

struct Bucket<K> {
    first: Entry<K>,
    others: Vec<Entry<K>>,
}

struct Entry<K> {
    key: K,
    /// Tells it from others of its key, before and after.
    number: usize,
    state: State,
}

enum State {
    /// Dropped, it cancels the call.
    Asked { _cancel: DropGuard },
    Held {
        token: u64,
        lease: Box<dyn LaneLease>,
        /// It had no lane when it was last looked at, and was not used since.
        is_idle: bool,
    },
}

/// A key whose lease is to be acquired.
pub(crate) struct LeaseRequest<K> {
    pub(super) key: K,
    pub(super) hash: u64,
    pub(super) number: usize,
    /// No message of the key waits any more.
    pub(super) cancelled: CancellationToken,
}

/// What became of a question for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It is held.
    Held,
    /// It will be, or the dispatcher ends before.
    Waits,
}

impl<K: Eq + Clone> LeaseTable<K> {
    pub(crate) fn new(requests: mpsc::UnboundedSender<LeaseRequest<K>>) -> Self {
        let shards = std::iter::repeat_with(|| OwnLine(Mutex::new(Shard::default())));
        Self {
            shards: shards.take(SHARDS).collect(),
            requests,
            count: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// The token of the lease of a key, if it is held. It is in use from now on.
    #[inline]
    pub(in crate::engine) fn held(&self, hash: u64, key: &K, now: Instant) -> Option<u64> {
        let mut shard = lock(self.shard(hash));
        match &mut shard.get_mut(&hash)?.entry(key)?.state {
            State::Held {
                token,
                lease,
                is_idle,
            } if lease.is_held(now.into()) => {
                *is_idle = false;
                Some(*token)
            }
            State::Held { .. } | State::Asked { .. } => None,
        }
    }

    /// An attempt under the lease of this key is in flight: wakes it when the lease is lost. True:
    /// it is lost.
    pub(in crate::engine) fn watch(
        &self,
        hash: u64,
        key: &K,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> bool {
        let mut shard = lock(self.shard(hash));
        let entry = shard.get_mut(&hash).and_then(|bucket| bucket.entry(key));
        if let Some(Entry {
            state: State::Held { lease, .. },
            ..
        }) = entry
            && lease.poll_lost(cx).is_pending()
            && lease.is_held(now.into())
        {
            return false;
        }
        let lost = take(&mut shard, hash, key);
        drop(shard);
        drop(lost);
        true
    }

    /// Asks for the lease of a key that waits for it.
    pub(super) fn ask(&self, hash: u64, key: &K, now: Instant) -> Asked {
        // The key's own `clone`, outside of the lock.
        let (owned, asked_for) = (key.clone(), key.clone());
        let mut shard = lock(self.shard(hash));
        let entry = shard.get_mut(&hash).and_then(|bucket| bucket.entry(key));
        match entry.map(|entry| &entry.state) {
            Some(State::Held { lease, .. }) if lease.is_held(now.into()) => return Asked::Held,
            Some(State::Asked { .. }) => return Asked::Waits,
            Some(State::Held { .. }) | None => {}
        }
        if self.is_closed() || self.is_over.load(Ordering::SeqCst) {
            return Asked::Waits;
        }
        let lost = take(&mut shard, hash, key);
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let cancelled = CancellationToken::new();
        let state = State::Asked {
            _cancel: cancelled.clone().drop_guard(),
        };
        let entry = Entry {
            key: owned,
            number,
            state,
        };
        match shard.get_mut(&hash) {
            Some(bucket) => bucket.others.push(entry),
            None => {
                let others = Vec::new();
                shard.insert(
                    hash,
                    Bucket {
                        first: entry,
                        others,
                    },
                );
            }
        }
        drop(shard);
        drop(lost);
        // If the task is gone, so is the dispatcher's runtime.
        let _ = self.requests.send(LeaseRequest {
            key: asked_for,
            hash,
            number,
            cancelled,
        });
        Asked::Waits
    }

    /// A lease was granted. False: no message of the key waits any more, and it is dropped.
    pub(super) fn grant(&self, request: &LeaseRequest<K>, lease: Box<dyn LaneLease>) -> bool {
        let mut lease = Some(lease);
        let mut shard = lock(self.shard(request.hash));
        let bucket = shard.get_mut(&request.hash);
        let entry = bucket.and_then(|bucket| bucket.entry(&request.key));
        if let Some(entry) = entry
            && entry.number == request.number
            && !self.is_over.load(Ordering::SeqCst)
            && let Some(lease) = lease.take()
        {
            entry.state = State::Held {
                token: lease.token(),
                lease,
                is_idle: false,
            };
        }
        drop(shard);
        lease.is_none()
    }

    /// Looks whether a lease is still needed. `has_lane` says whether the key has a lane, which may
    /// need it. False: it was given up, or is another one.
    pub(super) fn look(
        &self,
        hash: u64,
        key: &K,
        number: usize,
        lingers: bool,
        has_lane: impl FnOnce() -> bool,
    ) -> bool {
        let mut shard = lock(self.shard(hash));
        let bucket = shard.get_mut(&hash);
        let Some(entry) = bucket.and_then(|bucket| bucket.entry(key)) else {
            return false;
        };
        if entry.number != number {
            return false;
        }
        let has_lane = has_lane();
        let stays = match &mut entry.state {
            State::Asked { .. } => has_lane,
            State::Held { is_idle, .. } => {
                let was_idle = std::mem::replace(is_idle, !has_lane);
                has_lane || (lingers && !was_idle)
            }
        };
        if stays {
            return true;
        }
        let given_up = take(&mut shard, hash, key);
        drop(shard);
        // Its release, and the key's own drop.
        drop(given_up);
        false
    }

    /// Forgets a key for which no lease will be granted.
    pub(super) fn forget(&self, request: &LeaseRequest<K>) {
        let _ = self.look(request.hash, &request.key, request.number, false, || false);
    }

    /// No lease will be granted any more.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    pub(in crate::engine) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Gives up all leases: the dispatcher has ended.
    pub(in crate::engine) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        for shard in &self.shards {
            let entries = std::mem::take(&mut *lock(shard));
            drop(entries);
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<K>> {
        // Neither the bits of the slot in a shard, nor those that tell the slots of a shard apart.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl<K: Eq> Bucket<K> {
    #[inline]
    fn entry(&mut self, key: &K) -> Option<&mut Entry<K>> {
        if self.first.key == *key {
            return Some(&mut self.first);
        }
        self.others.iter_mut().find(|entry| entry.key == *key)
    }
}

/// Takes the entry of a key out of its shard, to be dropped outside of the lock.
fn take<K: Eq>(shard: &mut Shard<K>, hash: u64, key: &K) -> Option<Entry<K>> {
    let bucket = shard.get_mut(&hash)?;
    if let Some(at) = bucket.others.iter().position(|entry| entry.key == *key) {
        return Some(bucket.others.swap_remove(at));
    }
    if bucket.first.key != *key {
        return None;
    }
    match bucket.others.pop() {
        Some(other) => Some(std::mem::replace(&mut bucket.first, other)),
        None => shard.remove(&hash).map(|bucket| bucket.first),
    }
}
