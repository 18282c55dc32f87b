//! The leases of one dispatcher: which keys have one, and which wait for one.

use std::task::Context;

use keylane_rt::atomic::{AtomicBool, AtomicUsize, Ordering};
use keylane_rt::clock::Ticker;
use keylane_rt::unwind::dropped;
use keylane_rt::{Arc, Mutex, MutexGuard, OwnLine, lock, mpsc};
use keylane_source::lease::{LaneLease, LaneLeases};
use tokio_util::sync::CancellationToken;

use super::shard::{HeldLease, Lease, LeaseState, Moment, Shard, State};

/// A power of two.
const SHARDS: usize = 64;

/// By key: a lease that is held, or that was asked for.
pub(crate) struct LaneLeaseTable<K> {
    leases: Arc<dyn LaneLeases<K>>,
    /// By the hash of the key, so that runners seldom meet.
    shards: Box<[OwnLine<Mutex<Shard<K>>>]>,
    /// The channel to the task that acquires. There is one request for each entry at most.
    requests: mpsc::UnboundedSender<LeaseRequest<K>>,
    ticker: Ticker,
    /// How many entries there were.
    count: AtomicUsize,
    /// No lease will be granted any more. Partner: the sweep of the router when the intake has
    /// ended; each of the two is set before the other one is read.
    is_closed: AtomicBool,
    /// The dispatcher has ended. Written before the shards are emptied, read under their locks.
    is_over: AtomicBool,
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
pub(crate) enum Asked {
    /// It is held.
    Held,
    /// It will be, or the dispatcher ends before.
    Waits,
}

impl<K: Eq + Clone + 'static> LaneLeaseTable<K> {
    pub(crate) fn new(
        leases: Arc<dyn LaneLeases<K>>,
        requests: mpsc::UnboundedSender<LeaseRequest<K>>,
        ticker: Ticker,
    ) -> Self {
        let shards = std::iter::repeat_with(|| OwnLine(Mutex::new(Shard::default())));
        Self {
            leases,
            shards: shards.take(SHARDS).collect(),
            requests,
            ticker,
            count: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// Now, to look some leases up.
    #[inline]
    pub(in crate::engine) fn moment(&self) -> Moment {
        // The losses first: what is lost before a lease is asked is counted, or will be.
        let (losses, now) = (self.leases.losses(), self.ticker.now());
        Moment { losses, now }
    }

    /// The lease of a key, if it is held. It is in use from now on. Its key has a lane.
    #[inline]
    pub(in crate::engine) fn held(&self, moment: Moment, hash: u64, key: &K) -> Option<HeldLease> {
        let mut shard = self.shard_at(moment, hash);
        shard.held(hash, key, moment.now, &self.ticker)
    }

    /// The fencing token of a key, if its lease is held. Looking does not count as use.
    pub(in crate::engine) fn token(&self, hash: u64, key: &K) -> Option<u64> {
        let moment = self.moment();
        let mut shard = self.shard_at(moment, hash);
        shard.token(hash, key, moment.now, &self.ticker)
    }

    /// The same, where it was looked up before, if its key has had a lane since.
    #[inline]
    pub(crate) fn held_still(
        &self,
        known: Option<HeldLease>,
        hash: u64,
        key: &K,
    ) -> Option<HeldLease> {
        let moment = self.moment();
        let known = known.filter(|known| known.is_held(moment));
        known.or_else(|| self.held(moment, hash, key))
    }

    /// An attempt under the lease of this key is in flight: wakes it when the lease is lost. True:
    /// it is lost.
    pub(in crate::engine) fn watch(&self, hash: u64, key: &K, cx: &mut Context<'_>) -> bool {
        let moment = self.moment();
        let mut shard = self.shard_at(moment, hash);
        if !shard.poll_lost((hash, key), moment.now, &self.ticker, cx) {
            return false;
        }
        let lost = shard.take(hash, key);
        drop(shard);
        drop(lost);
        true
    }

    /// Asks for the lease of a key that waits for it.
    pub(crate) fn ask(&self, hash: u64, key: &K) -> Asked {
        // The key's own `clone`, outside of the lock.
        let (owned, asked_for) = (key.clone(), key.clone());
        let moment = self.moment();
        let mut shard = self.shard_at(moment, hash);
        match shard.standing(hash, key, moment.now, &self.ticker) {
            LeaseState::Asked => return Asked::Waits,
            LeaseState::Held => return Asked::Held,
            LeaseState::Gone => {}
        }
        if self.is_closed() || self.is_over.load(Ordering::SeqCst) {
            return Asked::Waits;
        }
        let lost = shard.take(hash, key);
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let cancelled = CancellationToken::new();
        let _cancel = cancelled.clone().drop_guard();
        let lease = Lease::Asked { _cancel };
        let state = State {
            hash,
            number,
            lease,
        };
        shard.put(owned, state);
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
        let mut shard = lock(self.shard(request.hash));
        let refused = match self.is_over.load(Ordering::SeqCst) {
            true => Some(lease),
            false => shard.grant((request.hash, &request.key, request.number), lease),
        };
        drop(shard);
        refused.is_none()
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
        match shard.is_needed((hash, key, number), lingers, has_lane) {
            None => return false,
            Some(true) => return true,
            Some(false) => {}
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
            let (keys, leases) = std::mem::take(&mut *lock(shard)).into_parts();
            // Each by itself: where the drop of one panics, the others are released all the same.
            for lease in leases {
                dropped(lease);
            }
            for key in keys {
                dropped(key);
            }
        }
    }

    /// A shard that knows of the losses up to this moment.
    #[inline]
    fn shard_at(&self, moment: Moment, hash: u64) -> MutexGuard<'_, Shard<K>> {
        let mut shard = lock(self.shard(hash));
        shard.follow(moment.losses);
        shard
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<K>> {
        // Neither the bits of the slot in a shard, nor those that tell the slots of a shard apart.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}
