//! What happens with time: leases that run out or are extended, heads that wait to be tried again.

use std::time::Duration;

use super::desk::{Due, Orders};
use super::error::LeaseError;
use super::item::{Item, Turn, Waiting};
use super::shared::Shared;
use crate::clock::{self, Instant};
use crate::engine::caught;
use crate::lanes::Lane;
use crate::rt::Arc;

/// Nothing in a queue lasts longer; a time beyond it is a mistake, and could not be added to a clock.
pub(super) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most leases and most heads that one tick moves under the lock.
const CHUNK: usize = 256;

impl<K, M> Shared<K, M> {
    pub(super) fn until(&self, slot: usize, token: u64) -> Option<Instant> {
        let now = clock::now();
        self.desk().until(slot, token, now)
    }

    pub(super) fn extend(&self, slot: usize, token: u64, time: Duration) -> Result<(), LeaseError> {
        if time.is_zero() {
            return Err(LeaseError::Zero);
        }
        if time > LONGEST {
            return Err(LeaseError::TooLong);
        }
        let now = clock::now();
        let mut desk = self.desk();
        desk.until(slot, token, now).ok_or(LeaseError::Expired)?;
        desk.extend(slot, token, now + time, now + self.lease_time);
        Ok(())
    }
}

impl<K: Eq + Clone, M> Shared<K, M> {
    /// Ends a lease; its message waits at the head of its lane.
    pub(super) fn put_off(
        &self,
        slot: usize,
        token: u64,
        time: Duration,
    ) -> Result<(), LeaseError> {
        let turn = self.take(slot, token)?;
        if time.is_zero() {
            #[cfg(keylane_mutant = "queue-tail")]
            return {
                let turn = self.to_tail(turn);
                self.push(turn);
                Ok(())
            };
            #[cfg(not(keylane_mutant = "queue-tail"))]
            {
                self.push(turn);
                return Ok(());
            }
        }
        let until = clock::now() + time.min(LONGEST);
        let (item, attempts) = (Arc::clone(&turn.item), turn.attempts);
        let head = Box::new(Waiting {
            turn,
            number: token,
        });
        let waits = caught(|| {
            self.lanes
                .with(item.hash, &item.key, |lane| lane.back_off(head, until))
        });
        match waits {
            Ok(Some(())) => {
                let driver = self.desk().wait(until, token, Arc::clone(&item));
                let orders = Orders {
                    driver,
                    ..Orders::default()
                };
                self.carry_out(orders);
                self.see_it_waits(until, token, &item);
            }
            // The key's `Eq` panicked, or answers this way today and that way tomorrow.
            Ok(None) | Err(_) => self.broken(Some(Turn { item, attempts })),
        }
        Ok(())
    }

    /// Makes ready what has run out and what is due. True: there may be more.
    pub(super) fn tick(&self) -> bool {
        let now = clock::now();
        let mut due = Vec::new();
        let (orders, more) = self.desk().tick(now, CHUNK, &mut due);
        self.carry_out(orders);
        due.into_iter().for_each(|due| self.start(due));
        more
    }

    /// Everything may have been taken back between the lane and the desk; then nobody would take the
    /// time of this head out of the desk before it has come.
    fn see_it_waits(&self, until: Instant, number: u64, item: &Item<K, M>) {
        let waits = caught(|| {
            let waits = |lane: &Lane<_, _, _>| lane.backs_off_until() == Some(until);
            self.lanes.peek(item.hash, &item.key, waits)
        });
        if waits != Ok(Some(true)) {
            let _item = self.desk().forget(until, number);
        }
    }

    /// A head that waited in its lane goes out again, if it is still there.
    fn start(&self, (until, item): Due<K, M>) {
        let head = caught(|| {
            self.lanes.with(item.hash, &item.key, |lane| {
                (lane.backs_off_until() == Some(until)).then(|| lane.due())
            })
        });
        match head {
            Ok(Some(Some(head))) => self.push(head.turn),
            // It was taken back meanwhile.
            Ok(_) => {}
            Err(_) => self.broken(None),
        }
    }

    #[cfg(keylane_mutant = "queue-tail")]
    fn to_tail(&self, turn: Turn<K, M>) -> Turn<K, M> {
        let item = Arc::clone(&turn.item);
        let advanced = self.lanes.advance(item.hash, &item.key, |lane| {
            let _ = lane.park(
                turn.item,
                usize::MAX,
                crate::lanes::AtLimit::Park,
                self.lanes.spares(),
            );
            Some(((), lane.finish()))
        });
        let next = advanced.and_then(|((), next)| next);
        Turn::new(next.expect("something was offered"))
    }
}
