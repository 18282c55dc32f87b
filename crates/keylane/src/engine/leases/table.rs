//! The leases of one dispatcher: which keys have one, and which wait for one.

use std::task::Context;
use std::time::Duration;

use hashbrown::HashTable;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::{self, Instant};
use crate::lease::{LaneLease, LaneLeases};
use crate::rt::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::rt::{Arc, Mutex, OwnLine, lock, mpsc};
use crate::unwind::dropped;

/// A power of two.
const SHARDS: usize = 64;

/// By key: a lease that is held, or that was asked for.
pub(crate) struct LeaseTable<K> {
    leases: Arc<dyn LaneLeases<K>>,
    /// By the hash of the key, so that runners seldom meet.
    shards: Box<[OwnLine<Mutex<Shard<K>>>]>,
    /// The channel to the task that acquires. There is one request for each entry at most.
    requests: mpsc::UnboundedSender<LeaseRequest<K>>,
    /// Where its time begins.
    epoch: Instant,
    /// How many entries there were.
    count: AtomicUsize,
    /// No lease will be granted any more. Partner: the sweep of the router when the intake has
    /// ended; each of the two is set before the other one is read.
    is_closed: AtomicBool,
    /// The dispatcher has ended. Written before the shards are emptied, read under their locks.
    is_over: AtomicBool,
}

struct Shard<K> {
    entries: HashTable<Entry<K>>,
    /// The time when it was last needed, and when that is over.
    ticks: Ticks,
    ticks_end: Instant,
}

/// Small, because a message that starts looks at one of many: the more of them a cache holds, the
/// faster it starts.
struct Entry<K> {
    key: K,
    term: Term,
    state: Box<State>,
}

/// What a message that starts looks at, and at nothing else as a rule.
#[derive(Default)]
struct Term {
    token: u64,
    /// Until when the lease was held when it was asked last. 0: it was lost, or not asked.
    until: Ticks,
    /// How many were lost before, as far as this counts.
    losses: Losses,
}

/// Some eight milliseconds each, since the table was made, rounded down. After a year and more they
/// are at their end: then no time is before another.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Ticks(u32);

/// How many leases were lost, without the highest bit; and in its place, whether the key had no lane
/// when its lease was last looked at, and was not used since.
#[derive(Clone, Copy, Default)]
struct Losses(u32);

struct State {
    hash: u64,
    /// Tells it from others of its key, before and after.
    number: usize,
    lease: Lease,
}

enum Lease {
    /// Dropped, it cancels the call.
    Asked {
        _cancel: DropGuard,
    },
    Held(Box<dyn LaneLease>),
}

/// When a lease is looked at.
#[derive(Clone, Copy)]
struct Now {
    time: Instant,
    ticks: Ticks,
    /// Read before the lease is asked.
    losses: Losses,
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

impl<K: Eq + Clone + 'static> LeaseTable<K> {
    pub(crate) fn new(
        leases: Arc<dyn LaneLeases<K>>,
        requests: mpsc::UnboundedSender<LeaseRequest<K>>,
    ) -> Self {
        let epoch = clock::now();
        let shards = std::iter::repeat_with(|| OwnLine(Mutex::new(Shard::new(epoch))));
        Self {
            leases,
            shards: shards.take(SHARDS).collect(),
            requests,
            epoch,
            count: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// The token of the lease of a key, if it is held. It is in use from now on.
    #[inline]
    pub(in crate::engine) fn held(&self, hash: u64, key: &K, now: Instant) -> Option<u64> {
        let losses = self.losses();
        let mut shard = lock(self.shard(hash));
        let now = shard.now(now, losses, self.epoch);
        let entry = shard.entry(hash, key)?;
        entry.is_held(now, self.epoch).then(|| {
            entry.term.losses.set_idle(false);
            entry.term.token
        })
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
        let losses = self.losses();
        let mut shard = lock(self.shard(hash));
        let now = shard.now(now, losses, self.epoch);
        if let Some(entry) = shard.entry(hash, key)
            && let Lease::Held(lease) = &mut entry.state.lease
            && lease.poll_lost(cx).is_pending()
            && entry.is_held(now, self.epoch)
        {
            return false;
        }
        let lost = shard.take(hash, key);
        drop(shard);
        drop(lost);
        true
    }

    /// Asks for the lease of a key that waits for it.
    pub(super) fn ask(&self, hash: u64, key: &K, now: Instant) -> Asked {
        let losses = self.losses();
        // The key's own `clone`, outside of the lock.
        let (owned, asked_for) = (key.clone(), key.clone());
        let mut shard = lock(self.shard(hash));
        let now = shard.now(now, losses, self.epoch);
        if let Some(entry) = shard.entry(hash, key) {
            if let Lease::Asked { .. } = entry.state.lease {
                return Asked::Waits;
            }
            if entry.is_held(now, self.epoch) {
                return Asked::Held;
            }
        }
        if self.is_closed() || self.is_over.load(Ordering::SeqCst) {
            return Asked::Waits;
        }
        let lost = shard.take(hash, key);
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let cancelled = CancellationToken::new();
        let _cancel = cancelled.clone().drop_guard();
        let lease = Lease::Asked { _cancel };
        let state = Box::new(State {
            hash,
            number,
            lease,
        });
        shard.put(Entry {
            key: owned,
            term: Term::default(),
            state,
        });
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
        if let Some(entry) = shard.entry(request.hash, &request.key)
            && entry.state.number == request.number
            && !self.is_over.load(Ordering::SeqCst)
            && let Some(lease) = lease.take()
        {
            entry.term = Term {
                token: lease.token(),
                ..Term::default()
            };
            entry.state.lease = Lease::Held(lease);
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
        let Some(entry) = shard.entry(hash, key) else {
            return false;
        };
        if entry.state.number != number {
            return false;
        }
        let has_lane = has_lane();
        let stays = match entry.state.lease {
            Lease::Asked { .. } => has_lane,
            Lease::Held(_) => {
                let was_idle = entry.term.losses.is_idle();
                entry.term.losses.set_idle(!has_lane);
                has_lane || (lingers && !was_idle)
            }
        };
        if stays {
            return true;
        }
        let given_up = shard.take(hash, key);
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
            let entries = std::mem::take(&mut lock(shard).entries);
            // Each by itself: where the drop of one panics, the others are released all the same.
            for entry in entries {
                dropped(entry);
            }
        }
    }

    #[inline]
    fn losses(&self) -> Losses {
        // The same number again would take two thousand million losses within one lease.
        Losses((self.leases.losses() as u32) & !IDLE)
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<K>> {
        // Neither the bits of the slot in a shard, nor those that tell the slots of a shard apart.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl<K> Shard<K> {
    fn new(epoch: Instant) -> Self {
        Self {
            entries: HashTable::new(),
            ticks: Ticks(0),
            ticks_end: epoch,
        }
    }

    #[inline]
    fn now(&mut self, time: Instant, losses: Losses, epoch: Instant) -> Now {
        // A time that was read earlier, by a thread that comes here later, counts as the later one:
        // its lease seems to end some milliseconds early, and is asked.
        if time >= self.ticks_end {
            self.ticks = Ticks::between(epoch, time);
            self.ticks_end = self.ticks.end(epoch).unwrap_or(time);
        }
        Now {
            time,
            ticks: self.ticks,
            losses,
        }
    }
}

impl<K: Eq> Shard<K> {
    #[inline]
    fn entry(&mut self, hash: u64, key: &K) -> Option<&mut Entry<K>> {
        self.entries.find_mut(hash, |entry| entry.key == *key)
    }

    /// Of a key that has no entry.
    fn put(&mut self, entry: Entry<K>) {
        let hash = entry.state.hash;
        self.entries
            .insert_unique(hash, entry, |entry| entry.state.hash);
    }

    /// Takes the entry of a key, to be dropped outside of the lock.
    fn take(&mut self, hash: u64, key: &K) -> Option<Entry<K>> {
        let entry = self
            .entries
            .find_entry(hash, |entry| entry.key == *key)
            .ok()?;
        Some(entry.remove().0)
    }
}

impl<K> Entry<K> {
    #[inline]
    fn is_held(&mut self, now: Now, epoch: Instant) -> bool {
        let term = &self.term;
        let is_known = now.ticks < term.until && term.losses.are(now.losses);
        is_known || self.ask_again(now, epoch)
    }

    #[cold]
    fn ask_again(&mut self, now: Now, epoch: Instant) -> bool {
        let Lease::Held(lease) = &self.state.lease else {
            return false;
        };
        let until = lease.held_until().map(Instant::from);
        self.term.until = until.map_or(Ticks(0), |until| Ticks::between(epoch, until));
        // What is lost after they were read is counted above them: what is kept here does not outlast
        // a loss.
        self.term.losses = now.losses;
        until.is_some_and(|until| now.time < until)
    }
}

/// Of how many nanoseconds there are in one of [`Ticks`].
const NANOS_LOG2: u32 = 23;

impl Ticks {
    #[inline]
    fn between(epoch: Instant, time: Instant) -> Self {
        let nanos = clock::nanos_since(epoch, time);
        Self(u32::try_from(nanos >> NANOS_LOG2).unwrap_or(u32::MAX))
    }

    /// When it is over. `None`: never.
    fn end(self, epoch: Instant) -> Option<Instant> {
        let next = self.0.checked_add(1)?;
        epoch.checked_add(Duration::from_nanos(u64::from(next) << NANOS_LOG2))
    }
}

/// The bit of [`Losses`] that is no count.
const IDLE: u32 = 1 << 31;

impl Losses {
    #[inline]
    fn are(self, other: Self) -> bool {
        (self.0 ^ other.0) & !IDLE == 0
    }

    fn is_idle(self) -> bool {
        self.0 & IDLE != 0
    }

    /// Writes only what changes: other processors have copies of what is not written.
    #[inline]
    fn set_idle(&mut self, is_idle: bool) {
        if self.is_idle() != is_idle {
            self.0 ^= IDLE;
        }
    }
}
