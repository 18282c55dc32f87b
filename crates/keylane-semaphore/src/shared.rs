//! The state that the handle, reservations, futures and permits share. It carries out the decisions
//! of lanes and slots.

use std::convert::Infallible;

use keylane_lanes::{AtLimit, LaneMap, Next, Offered};
use keylane_rt::Arc;
use keylane_rt::atomic::{AtomicBool, Ordering};
use keylane_rt::unwind::{Quiet, caught};

use super::slots::{SlotAnswer, Slots};
use super::waiter::{Waiter, WaiterStage};

pub(super) type HashFn<K> = Box<dyn Fn(&K) -> u64 + Send + Sync>;

type Lane = keylane_lanes::Lane<Arc<Waiter>, Infallible, ()>;

pub(super) struct Shared<K> {
    lanes: LaneMap<Quiet<K>, Arc<Waiter>, Infallible, ()>,
    /// One slot for each reservation, until what becomes of it is dropped.
    pub(super) capacity: Slots,
    /// One slot for each permit. `None` if the capacity is the lower limit.
    concurrency: Option<Slots>,
    lane_capacity: usize,
    /// Release by `close`, acquire by all others. A thread that reads it too early may still join a
    /// lane; so it is read again under the shard's lock, and no waiter is parked in a shard that
    /// `close` has emptied already.
    closed: AtomicBool,
    pub(super) hash: HashFn<K>,
}

/// What a future or a permit owns: a slot of the capacity, and with a key a place in its lane.
pub(super) struct Claim<K> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) key: Option<Quiet<K>>,
    pub(super) hash: u64,
}

/// The result of joining a lane.
pub(super) enum Joined {
    /// The permit is there.
    Granted,
    Waiting(Arc<Waiter>),
    LaneFull,
    Closed,
}

impl<K> Shared<K> {
    /// Lets no newcomer in, and fails all that wait for a slot.
    fn close_slots(&self) {
        self.closed.store(true, Ordering::Release);
        self.capacity.close();
        if let Some(permits) = &self.concurrency {
            permits.close();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn permits_in_use(&self) -> Option<usize> {
        self.concurrency.as_ref().map(Slots::in_use)
    }
}

impl<K: Eq + Clone> Shared<K> {
    pub(super) fn new(
        capacity: usize,
        concurrency: usize,
        lane_capacity: usize,
        shards: Option<usize>,
        hash: HashFn<K>,
    ) -> Self {
        Self {
            lanes: LaneMap::new(shards),
            capacity: Slots::new(capacity),
            concurrency: (concurrency < capacity).then(|| Slots::new(concurrency)),
            lane_capacity,
            closed: AtomicBool::new(false),
            hash,
        }
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Takes the next place in the lane of a key. Without a key there is no lane to wait in.
    #[inline]
    pub(super) fn join(&self, key: Option<&Quiet<K>>, hash: u64) -> Joined {
        if self.is_closed() {
            return Joined::Closed;
        }
        let Some(key) = key else {
            return self.take_permit();
        };
        let parked = self.lanes.enter(hash, key, |lane| {
            if self.is_closed() {
                return Joined::Closed;
            }
            let depth = lane.len();
            if depth >= self.lane_capacity && depth - left_in(lane) >= self.lane_capacity {
                return Joined::LaneFull;
            }
            let waiter = Arc::new(Waiter::new(WaiterStage::Parked));
            let parked = Arc::clone(&waiter);
            match lane.park(parked, usize::MAX, AtLimit::Park, self.lanes.spares()) {
                Offered::Parked => Joined::Waiting(waiter),
                _ => Joined::LaneFull,
            }
        });
        match parked {
            Some(joined) => joined,
            None => match self.take_permit() {
                Joined::Closed => {
                    // The lane was made above. Waiters that came in behind it are failed too.
                    self.advance(key, hash);
                    Joined::Closed
                }
                joined => joined,
            },
        }
    }

    /// The head of a new lane, or an `acquire` without a key, asks for a permit.
    #[inline]
    fn take_permit(&self) -> Joined {
        match &self.concurrency {
            None => Joined::Granted,
            Some(permits) if permits.try_take() => Joined::Granted,
            Some(permits) => {
                let waiter = Arc::new(Waiter::new(WaiterStage::Queued));
                match permits.take_or_wait(&waiter) {
                    SlotAnswer::Now => Joined::Granted,
                    SlotAnswer::Later => Joined::Waiting(waiter),
                    SlotAnswer::Left | SlotAnswer::Closed => Joined::Closed,
                }
            }
        }
    }

    /// The head of a lane is gone: the next waiter is the head now, and asks for a permit.
    fn advance(&self, key: &Quiet<K>, hash: u64) {
        let next = caught(|| {
            self.lanes.advance(hash, key, |lane| {
                let next = next_head(lane);
                Some(((), next))
            })
        });
        let head = match next {
            Ok(Some(((), head))) => head,
            Ok(None) | Err(_) => return self.fail_closed(),
        };
        let Some(waiter) = head else { return };
        let ended = match &self.concurrency {
            _ if self.is_closed() => waiter.shift(WaiterStage::Queued, WaiterStage::ClosedQueued),
            None => waiter.shift(WaiterStage::Queued, WaiterStage::Granted),
            Some(permits) => match permits.take_or_wait(&waiter) {
                SlotAnswer::Now => {
                    let granted = waiter.shift(WaiterStage::Queued, WaiterStage::Granted);
                    if !granted {
                        permits.give_back();
                    }
                    granted
                }
                // A waiter that leaves while it is queued moves the lane on itself.
                SlotAnswer::Later | SlotAnswer::Left => false,
                SlotAnswer::Closed => waiter.shift(WaiterStage::Queued, WaiterStage::ClosedQueued),
            },
        };
        if ended {
            waiter.wake();
        }
    }

    /// Ends a permit, or the place of a head that had no permit yet.
    pub(super) fn release(&self, key: Option<&Quiet<K>>, hash: u64, had_permit: bool) {
        // Before the lane moves on, so that its next waiter can have this permit if no other waits.
        if had_permit && let Some(permits) = &self.concurrency {
            permits.give_back();
        }
        if let Some(key) = key {
            self.advance(key, hash);
        }
        self.capacity.give_back();
    }

    /// A future that waits is dropped.
    pub(super) fn leave(&self, key: Option<&Quiet<K>>, hash: u64, waiter: &Waiter) {
        waiter.drop_waker();
        if let Some(key) = key {
            let left = caught(|| self.lanes.with(hash, key, |lane| leave_lane(lane, waiter)));
            match left {
                Ok(Some(true)) => return self.capacity.give_back(),
                // It is not parked any more, and its lane may be gone.
                Ok(Some(false) | None) => {}
                Err(_) => self.fail_closed(),
            }
        }
        let left = match &self.concurrency {
            Some(permits) => permits.leave(waiter),
            None => waiter.shift(WaiterStage::Queued, WaiterStage::Left),
        };
        match waiter.stage() {
            _ if left => self.release(key, hash, false),
            WaiterStage::Granted => self.release(key, hash, true),
            WaiterStage::ClosedQueued => self.release(key, hash, false),
            WaiterStage::Parked
            | WaiterStage::Queued
            | WaiterStage::Left
            | WaiterStage::ClosedParked => {
                // It is parked in a lane that its key does not find, and no `close` is under way.
                if waiter.stage() == WaiterStage::Parked && !self.is_closed() {
                    self.fail_closed();
                }
                self.capacity.give_back();
            }
        }
    }

    /// Lets no newcomer in, and fails all that wait.
    pub(super) fn close(&self) {
        self.close_slots();
        let mut failed = Vec::new();
        self.lanes.sweep(|_, _, lane| {
            let (_, parked) = lane.hand_back();
            failed.extend(parked);
            // The lane stays: its head is queued or granted, and removes it when it is dropped.
            true
        });
        for waiter in failed {
            if waiter.shift(WaiterStage::Parked, WaiterStage::ClosedParked) {
                waiter.wake();
            }
        }
    }

    /// A lane cannot be found by its key, so it cannot be moved on: closes the semaphore, because
    /// those in that lane would wait for ever.
    #[cold]
    fn fail_closed(&self) {
        tracing::error!(
            target: "keylane",
            "a key is not equal to itself, or its code panics: the semaphore is closed"
        );
        self.close();
    }
}

/// Under the shard's lock: the first parked waiter that has not left becomes the head.
fn next_head(lane: &mut Lane) -> Next<Arc<Waiter>> {
    let mut left = left_in(lane);
    loop {
        let next = lane.finish();
        let Next::Start(waiter) = &next else {
            return next;
        };
        if waiter.shift(WaiterStage::Parked, WaiterStage::Queued) {
            // All but the first waiter count 0, and so does the one that is first now.
            if left > 0 {
                set_left_in(lane, left);
            }
            return next;
        }
        left = left.saturating_sub(1);
    }
}

/// Under the shard's lock: leaves the lane. False: it is not parked any more.
fn leave_lane(lane: &mut Lane, waiter: &Waiter) -> bool {
    if !waiter.shift(WaiterStage::Parked, WaiterStage::Left) {
        return false;
    }
    set_left_in(lane, left_in(lane) + 1);
    true
}

/// Under the shard's lock: how many waiters are in the lane that have left.
fn left_in(lane: &Lane) -> usize {
    let parked = lane.parked();
    parked.oldest().map_or(0, |first| first.left_in_lane())
}

/// Under the shard's lock: notes how many have left, and sweeps them out once they are more than
/// half.
fn set_left_in(lane: &mut Lane, mut left: usize) {
    let parked = lane.parked_mut();
    if left > parked.len() / 2 {
        parked.retain(|waiter| waiter.stage() != WaiterStage::Left);
        left = 0;
    }
    if let Some(first) = parked.oldest() {
        first.set_left_in_lane(left);
    }
}
