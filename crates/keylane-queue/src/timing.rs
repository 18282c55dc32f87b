//! Time in a queue: leases that expire or are extended, heads that are delayed.

use std::task::Waker;
use std::time::Duration;

use keylane_rt::Arc;
use keylane_rt::clock::Instant;

use super::delivery::{DelayedHead, Delivery, KeyedMessage};
use super::error::LeaseError;
use super::expiry_queue::LeaseId;
use super::lanes::BrokenKey;
use super::lease_table::{DueHead, NextWake};
use super::shared::Shared;

/// Nothing in a queue lasts longer: what goes beyond it could not be added to a clock.
pub(super) const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most leases, and most delays, that are ended under the lock at once.
const PORTION: usize = 256;

impl<K, M> Shared<K, M> {
    /// When a lease expires, and how long that is from now.
    pub(super) fn expiry(&self, id: LeaseId) -> Option<(Instant, Duration)> {
        let now = self.clock.now();
        let expires_at = self.table().expires_at(id, now)?;
        Some((expires_at, expires_at.saturating_duration_since(now)))
    }

    pub(super) fn extend(&self, id: LeaseId, time: Duration) -> Result<(), LeaseError> {
        if time.is_zero() {
            return Err(LeaseError::Zero);
        }
        if time > MAX_TIME {
            return Err(LeaseError::TooLong);
        }
        let now = self.clock.now();
        match self.table().extend(id, now, time, self.lease_time) {
            true => Ok(()),
            false => Err(LeaseError::Expired),
        }
    }

    pub(super) fn plan_wake(&self, driver: &Waker) -> NextWake {
        self.table().plan_wake(driver)
    }
}

impl<K: Eq + Clone, M> Shared<K, M> {
    /// Ends a lease. Its message stays the head of its lane, and is ready again after `time`.
    pub(super) fn delay(&self, id: LeaseId, time: Duration) -> Result<(), LeaseError> {
        let delivery = self.end(id)?;
        if time.is_zero() {
            self.push(delivery);
            return Ok(());
        }
        let until = self.clock.now() + time.min(MAX_TIME);
        let Delivery { item, attempts } = delivery;
        let head = DelayedHead {
            delivery: Delivery {
                item: Arc::clone(&item),
                attempts,
            },
            number: id.token,
        };
        match self.lanes.delay(&item, head, until) {
            Ok(()) => {
                let notifications = self.table().delay(until, id.token, Arc::clone(&item));
                self.notify(notifications);
                self.check_delay(until, id.token, &item);
            }
            Err(BrokenKey) => self.stop_for_broken_key(Some(Delivery { item, attempts })),
        }
        Ok(())
    }

    /// Makes ready whose lease has expired and whose delay is over. Returns true if there may be
    /// more.
    pub(super) fn expire(&self) -> bool {
        let now = self.clock.now();
        let mut due = Vec::new();
        let (notifications, may_be_more) = self.table().expire(now, PORTION, &mut due);
        self.notify(notifications);
        due.into_iter().for_each(|due| self.end_delay(due));
        may_be_more
    }

    /// `take_parked` may have taken the head after it came into its lane and before its delay came
    /// into the table. Nothing else would remove that delay before its time.
    fn check_delay(&self, until: Instant, number: u64, item: &KeyedMessage<K, M>) {
        if !self.lanes.is_delayed(item, until) {
            // Dropped after the lock.
            let _item = self.table().cancel_delay(until, number);
        }
    }

    /// Makes a head ready whose delay is over, unless `take_parked` has taken it.
    fn end_delay(&self, (until, item): DueHead<Arc<KeyedMessage<K, M>>>) {
        match self.lanes.take_due(&item, until) {
            Ok(Some(delivery)) => self.push(delivery),
            Ok(None) => {}
            Err(BrokenKey) => self.stop_for_broken_key(None),
        }
    }
}
