//! What handles, leases and the driver share: it carries out what the desk and the lanes decide.

use std::task::Waker;
use std::time::Duration;

use super::desk::{Desk, Grant, Orders, Outcome, Watch};
use super::error::LeaseError;
use super::item::{Item, Turn, Waiting};
use super::lease::Lease;
use super::report::QueueReport;
use super::returned::Returned;
use crate::clock;
use crate::engine::{Quiet, caught, shielded};
use crate::lanes::{AtLimit, LaneMap, Next};
use crate::rt::{AbortHandle, Arc, Mutex, MutexGuard, Semaphore, lock};

/// The key of a message, and its hash.
pub(super) type Locate<K, M> = Box<dyn Fn(&M) -> (K, u64) + Send + Sync>;

type Lanes<K, M> = LaneMap<Quiet<K>, Arc<Item<K, M>>, Waiting<K, M>, ()>;

pub(super) struct Shared<K, M> {
    pub(super) lanes: Lanes<K, M>,
    desk: Mutex<Desk<K, M>>,
    /// Room for messages. Senders wait here.
    pub(super) room: Semaphore,
    /// A permit for each ready turn. Those who dequeue wait here.
    pub(super) turns: Semaphore,
    /// Closed at the end. Those who drain wait here.
    pub(super) end: Semaphore,
    pub(super) locate: Locate<K, M>,
    pub(super) limit: usize,
    pub(super) lease_time: Duration,
    driver: Mutex<Option<AbortHandle>>,
}

impl<K, M> Shared<K, M> {
    /// Ends a lease that was dropped.
    pub(super) fn release(&self, slot: usize, token: u64) {
        let orders = self.desk().release(slot, token);
        self.carry_out(orders);
    }

    pub(super) fn close(&self) {
        let orders = self.desk().close();
        self.carry_out(orders);
    }

    /// Nobody keeps the time any more: nobody may wait any more.
    pub(super) fn stop(&self) {
        let orders = self.desk().stop();
        self.carry_out(orders);
    }

    pub(super) fn is_open(&self) -> bool {
        self.desk().is_open()
    }

    pub(super) fn is_over(&self) -> bool {
        self.desk().is_over()
    }

    pub(super) fn leased(&self) -> usize {
        self.desk().leased()
    }

    pub(super) fn report(&self) -> QueueReport {
        self.desk().report()
    }

    pub(super) fn watch(&self, waker: &Waker) -> Watch {
        self.desk().watch(waker)
    }

    pub(super) fn set_driver(&self, driver: AbortHandle) {
        *lock(&self.driver) = Some(driver);
    }

    pub(super) fn desk(&self) -> MutexGuard<'_, Desk<K, M>> {
        lock(&self.desk)
    }

    pub(super) fn carry_out(&self, orders: Orders) {
        let Orders {
            turns,
            room,
            closed,
            over,
            driver,
        } = orders;
        if turns > 0 {
            shielded(|| self.turns.add_permits(turns));
        }
        if room > 0 {
            shielded(|| self.room.add_permits(room));
        }
        if closed {
            shielded(|| self.room.close());
        }
        if over {
            shielded(|| self.turns.close());
            shielded(|| self.end.close());
        }
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl<K: Eq + Clone, M> Shared<K, M> {
    pub(super) fn new(locate: Locate<K, M>, limit: usize, lease_time: Duration) -> Self {
        Self {
            lanes: LaneMap::new(None),
            desk: Mutex::new(Desk::new()),
            room: Semaphore::new(limit),
            turns: Semaphore::new(0),
            end: Semaphore::new(0),
            locate,
            limit,
            lease_time,
            driver: Mutex::new(None),
        }
    }

    /// Puts a message into the lane of its key, whose room is taken. From here on it is accepted, or
    /// comes back at once.
    pub(super) fn put(&self, key: K, hash: u64, message: M) -> Result<(), M> {
        if !self.desk().accept() {
            return Err(message);
        }
        let accepted = Accepted(self);
        let item = Arc::new(Item {
            key: Quiet::new(key),
            hash,
            message: Quiet::new(message),
        });
        let present = self.lanes.enter(hash, &item.key, |lane| {
            let parked = Arc::clone(&item);
            lane.park(parked, usize::MAX, AtLimit::Park, self.lanes.spares())
        });
        std::mem::forget(accepted);
        if present.is_none() {
            self.push(Turn::new(item));
        }
        Ok(())
    }

    /// Leases the turn that has been ready longest. `None`: somebody else has taken it.
    pub(super) fn grant(self: &Arc<Self>) -> Option<Lease<K, M>> {
        let now = clock::now();
        let (grant, orders) = self.desk().grant(now, self.lease_time)?;
        self.carry_out(orders);
        let Grant {
            item,
            slot,
            token,
            attempt,
        } = grant;
        Some(Lease {
            shared: Arc::clone(self),
            item,
            slot: Some(slot),
            token,
            attempt,
        })
    }

    /// Settles the message of a lease, and moves its lane on.
    pub(super) fn settle(
        &self,
        slot: usize,
        token: u64,
        outcome: Outcome,
    ) -> Result<Turn<K, M>, LeaseError> {
        let turn = self.take(slot, token)?;
        let next = self.next(&turn.item);
        let orders = self.desk().settle(outcome, 1, next);
        self.carry_out(orders);
        Ok(turn)
    }

    /// Takes everything that nobody has leased: heads first, then what is behind them, key by key.
    pub(super) fn take_parked(&self) -> Vec<Returned<K, M>> {
        let mut taken = Vec::new();
        // A turn without a permit belongs to somebody who was told to come and get it.
        while self.claim() || self.is_over() {
            let mut next = self.desk().pop();
            if next.is_none() {
                break;
            }
            while let Some(turn) = next {
                next = self.next(&turn.item);
                taken.push(Returned::new(turn));
            }
        }
        let mut waits = Vec::new();
        self.lanes.sweep(|_, _, lane| {
            let until = lane.backs_off_until();
            let (head, parked) = lane.hand_back();
            // A head that is out comes back to its lane.
            let stays = head.is_none();
            if let Some((head, until)) = head.zip(until) {
                waits.push((until, head.number));
                taken.push(Returned::new(head.turn));
            }
            taken.extend(
                parked
                    .into_iter()
                    .map(|item| Returned::new(Turn::new(item))),
            );
            stays
        });
        for (until, number) in waits {
            // Dropped after the lock.
            let _item = self.desk().forget(until, number);
        }
        let orders = self.desk().settle(Outcome::HandedBack, taken.len(), None);
        self.carry_out(orders);
        taken
    }

    fn claim(&self) -> bool {
        self.turns.try_acquire().map(|turn| turn.forget()).is_ok()
    }

    pub(super) fn push(&self, turn: Turn<K, M>) {
        let orders = self.desk().push(turn);
        self.carry_out(orders);
    }

    pub(super) fn take(&self, slot: usize, token: u64) -> Result<Turn<K, M>, LeaseError> {
        let now = clock::now();
        let taken = self.desk().take(slot, token, now);
        taken.map_err(|orders| {
            self.carry_out(orders);
            LeaseError::Expired
        })
    }

    /// The head of this lane has settled: what comes next?
    fn next(&self, item: &Item<K, M>) -> Option<Turn<K, M>> {
        let advanced = caught(|| {
            self.lanes.advance(item.hash, &item.key, |lane| {
                let next: Next<_> = lane.finish();
                Some(((), next))
            })
        });
        match advanced {
            Ok(Some(((), next))) => next.map(Turn::new),
            Ok(None) | Err(_) => {
                self.broken(None);
                None
            }
        }
    }

    /// A key cannot be found again by itself, so its lane cannot be moved on. The queue is over
    /// before anybody waits for that lane; `take_parked` has what is left.
    pub(super) fn broken(&self, turn: Option<Turn<K, M>>) {
        tracing::error!(target: "keylane", "a key is not equal to itself, or panics: the queue is closed");
        if let Some(turn) = turn {
            self.push(turn);
        }
        self.stop();
    }
}

impl<K, M> Drop for Shared<K, M> {
    fn drop(&mut self) {
        if let Some(driver) = lock(&self.driver).take() {
            driver.abort();
        }
    }
}

/// A message that is counted as accepted, until it is in its lane. If the key panics on the way, it
/// never was.
struct Accepted<'a, K, M>(&'a Shared<K, M>);

impl<K, M> Drop for Accepted<'_, K, M> {
    fn drop(&mut self) {
        let orders = self.0.desk().refuse();
        self.0.carry_out(orders);
    }
}
