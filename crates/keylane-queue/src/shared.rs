//! The state that handles, leases and the driver share: the lease table under its lock, the lanes,
//! and the tasks that wait. The functions are in the order of a message's way;
//! [`timing`](super::timing) has those that depend on the time.

use std::time::Duration;

use keylane_rt::clock::RuntimeClock;
use keylane_rt::unwind::{Quiet, shielded};
use keylane_rt::{Arc, Mutex, MutexGuard, Semaphore, lock};

use super::delivery::{Delivery, KeyedMessage};
use super::error::{EnqueueError, LeaseError};
use super::expiry_queue::LeaseId;
use super::lanes::{BrokenKey, Lanes, Placement};
use super::lease_table::{Grant, LeaseTable, Notifications, Settlement};
use super::report::Report;
use super::returned::Returned;

/// The key of a message, and its hash.
pub(super) type Locate<K, M> = Box<dyn Fn(&M) -> (K, u64) + Send + Sync>;

pub(super) struct Shared<K, M> {
    pub(super) locate: Locate<K, M>,
    /// A permit for each message that may still be accepted. Tasks that enqueue wait here.
    pub(super) room: Semaphore,
    pub(super) lanes: Lanes<K, M>,
    table: Mutex<LeaseTable<Arc<KeyedMessage<K, M>>>>,
    /// A permit for each ready message. Tasks that dequeue wait here.
    pub(super) ready: Semaphore,
    /// It has no permits, and is closed when the queue is finished. Tasks that drain wait here.
    pub(super) finished: Semaphore,
    pub(super) clock: RuntimeClock,
    pub(super) capacity: usize,
    pub(super) lease_time: Duration,
}

impl<K, M> Shared<K, M> {
    /// Ends a lease that was dropped.
    pub(super) fn release(&self, id: LeaseId) {
        let notifications = self.table().release(id);
        self.notify(notifications);
    }

    pub(super) fn close(&self) {
        let notifications = self.table().close();
        self.notify(notifications);
    }

    /// Finishes the queue at once: it has no driver any more, or a key that is broken.
    pub(super) fn stop(&self) {
        let notifications = self.table().stop();
        self.notify(notifications);
    }

    pub(super) fn is_open(&self) -> bool {
        self.table().is_open()
    }

    pub(super) fn leased(&self) -> usize {
        self.table().leased()
    }

    pub(super) fn report(&self) -> Report {
        self.table().report()
    }

    pub(super) fn table(&self) -> MutexGuard<'_, LeaseTable<Arc<KeyedMessage<K, M>>>> {
        lock(&self.table)
    }

    pub(super) fn push(&self, delivery: Delivery<Arc<KeyedMessage<K, M>>>) {
        let notifications = self.table().push(delivery);
        self.notify(notifications);
    }

    /// Wakes the tasks that the table names. No lock is held: the wakers are the user's code.
    pub(super) fn notify(&self, notifications: Notifications) {
        let Notifications {
            ready,
            settled,
            closed,
            finished,
            driver,
        } = notifications;
        if ready > 0 {
            shielded(|| self.ready.add_permits(ready));
        }
        if settled > 0 {
            shielded(|| self.room.add_permits(settled));
        }
        if closed {
            shielded(|| self.room.close());
        }
        if finished {
            shielded(|| self.ready.close());
            shielded(|| self.finished.close());
        }
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl<K: Eq + Clone, M> Shared<K, M> {
    pub(super) fn new(
        locate: Locate<K, M>,
        lanes: Lanes<K, M>,
        clock: RuntimeClock,
        capacity: usize,
        lease_time: Duration,
    ) -> Self {
        Self {
            locate,
            room: Semaphore::new(capacity),
            lanes,
            table: Mutex::new(LeaseTable::new()),
            ready: Semaphore::new(0),
            finished: Semaphore::new(0),
            clock,
            capacity,
            lease_time,
        }
    }

    /// Puts a message into the lane of its key. The caller has a permit of `room` for it, and
    /// forgets the permit if the message is accepted.
    pub(super) fn enqueue(&self, key: K, hash: u64, message: M) -> Result<(), EnqueueError<M>> {
        if !self.table().accept() {
            return Err(EnqueueError::Closed(message));
        }
        let entering = Entering(self);
        let item = Arc::new(KeyedMessage {
            key: Quiet::new(key),
            hash,
            message: Quiet::new(message),
        });
        match self.lanes.offer(&item) {
            Placement::Refused => {
                drop(entering);
                let item = Arc::into_inner(item).expect("the lane has kept no part of it");
                return Err(EnqueueError::LaneFull(item.message.into_inner()));
            }
            Placement::Head => {
                std::mem::forget(entering);
                self.push(Delivery::new(item));
            }
            Placement::Parked => std::mem::forget(entering),
        }
        Ok(())
    }

    /// Leases the message that has been ready longest. `None` if another caller has taken it.
    pub(super) fn lease(&self) -> Option<Grant<Arc<KeyedMessage<K, M>>>> {
        let now = self.clock.now();
        let (grant, notifications) = self.table().lease(now, self.lease_time)?;
        self.notify(notifications);
        Some(grant)
    }

    /// Ends a lease for its worker, unless it has expired.
    pub(super) fn end(&self, id: LeaseId) -> Result<Delivery<Arc<KeyedMessage<K, M>>>, LeaseError> {
        let now = self.clock.now();
        let ended = self.table().end(id, now);
        ended.map_err(|notifications| {
            self.notify(notifications);
            LeaseError::Expired
        })
    }

    /// Settles the message of a lease. The next message of its key becomes ready.
    pub(super) fn settle(
        &self,
        id: LeaseId,
        settlement: Settlement,
    ) -> Result<Returned<K, M>, LeaseError> {
        let delivery = self.end(id)?;
        let next = self.next(&delivery.item);
        let notifications = self.table().settle(settlement, 1, next);
        self.notify(notifications);
        Ok(Returned::new(delivery))
    }

    /// Takes every message that is not leased, and settles it as handed back.
    pub(super) fn take_parked(&self) -> Vec<Returned<K, M>> {
        let mut taken = Vec::new();
        // A ready message whose permit is taken belongs to a `dequeue` that has been woken for it.
        while self.take_permit() || self.is_finished() {
            let mut head = self.table().pop();
            if head.is_none() {
                break;
            }
            while let Some(delivery) = head {
                head = self.next(&delivery.item);
                taken.push(Returned::new(delivery));
            }
        }
        let mut delays = Vec::new();
        self.lanes.take_all(|head, parked| {
            if let Some((head, until)) = head {
                delays.push((until, head.number));
                taken.push(Returned::new(head.delivery));
            }
            let parked = parked.into_iter().map(Delivery::new);
            taken.extend(parked.map(Returned::new));
        });
        for (until, number) in delays {
            // Dropped after the lock.
            let _item = self.table().cancel_delay(until, number);
        }
        let notifications = self
            .table()
            .settle(Settlement::HandedBack, taken.len(), None);
        self.notify(notifications);
        taken
    }

    /// Finishes the queue because a key does not find its lane again, which can then never move on.
    /// No task waits for that lane for ever, and [`take_parked`](Self::take_parked) has what is
    /// left.
    pub(super) fn stop_for_broken_key(&self, delivery: Option<Delivery<Arc<KeyedMessage<K, M>>>>) {
        tracing::error!(
            target: "keylane",
            "a key is not equal to itself, or its code panics: the queue is closed"
        );
        if let Some(delivery) = delivery {
            self.push(delivery);
        }
        self.stop();
    }

    /// The message behind a head that has settled.
    fn next(&self, item: &KeyedMessage<K, M>) -> Option<Delivery<Arc<KeyedMessage<K, M>>>> {
        match self.lanes.advance(item) {
            Ok(next) => next.map(Delivery::new),
            Err(BrokenKey) => {
                self.stop_for_broken_key(None);
                None
            }
        }
    }

    fn take_permit(&self) -> bool {
        let permit = self.ready.try_acquire();
        permit.map(|permit| permit.forget()).is_ok()
    }

    fn is_finished(&self) -> bool {
        self.table().is_finished()
    }
}

impl<K, M> Drop for Shared<K, M> {
    fn drop(&mut self) {
        // The driver finds that the queue is gone, and ends.
        self.stop();
    }
}

/// A message that is counted as accepted and not yet in its lane. If the lane is full, or the key
/// panics, it was never accepted.
struct Entering<'a, K, M>(&'a Shared<K, M>);

impl<K, M> Drop for Entering<'_, K, M> {
    fn drop(&mut self) {
        let notifications = self.0.table().withdraw();
        self.0.notify(notifications);
    }
}
