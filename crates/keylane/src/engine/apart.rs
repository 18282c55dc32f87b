//! The stalled: messages behind failing heads are no load, and are counted apart.

use super::message::{Debt, Load, Standing, Ticket};
use super::{Engine, Lane};
use crate::rt::atomic::Ordering;
use crate::types::Spec;

/// Room to return after a lock is gone: returning it wakes senders.
#[derive(Debug, Default)]
pub(super) struct Freed {
    pub(super) room: usize,
    pub(super) bytes: usize,
}

impl<T: Spec> Engine<T> {
    /// Takes a message out of the load, if the limit of the stalled allows.
    pub(super) fn set_apart(&self, ticket: &mut Ticket<T>, freed: &mut Freed) -> bool {
        self.set_debt_apart(&mut ticket.debt, freed)
    }

    /// The same for what is owed for a message that has not come into its lane.
    fn set_debt_apart(&self, debt: &mut Debt<T>, freed: &mut Freed) -> bool {
        let claimed = self.set_load_apart(debt.load_mut(), freed);
        if debt.terms().is_some_and(|terms| !terms.merged.is_empty()) {
            // From the newest: the older ones may be apart from an earlier stall.
            for merged in debt.terms_mut().merged.iter_mut().rev() {
                if !self.set_load_apart(merged.load_mut(), freed) {
                    break;
                }
            }
        }
        claimed
    }

    fn set_load_apart(&self, load: &mut Load, freed: &mut Freed) -> bool {
        if load.standing != Standing::Load || cfg!(keylane_mutant = "stalled-counts") {
            return false;
        }
        let limit = self.settings.stalled_capacity;
        let claimed = self
            .stalled
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < limit).then_some(n + 1)
            })
            .is_ok();
        if claimed {
            load.standing = Standing::Apart;
            freed.room += 1;
            freed.bytes += load.weight() as usize;
        }
        claimed
    }

    /// Takes a whole lane out of the load that is stalled, or above its limit. Under the shard's lock.
    ///
    /// From the back: what is already apart is in front, from an earlier stall, so that each
    /// message is looked at once and not once for every retry before it.
    pub(super) fn set_lane_apart(&self, lane: &mut Lane<T>, freed: &mut Freed) {
        for parked in lane.parked_mut().rev() {
            if !self.set_apart(&mut parked.ticket, freed) {
                break;
            }
        }
        if let Some(head) = lane.head_mut() {
            self.set_apart(&mut head.ticket, freed);
        }
    }

    /// Takes a message out of the load that waits outside of the lanes. Not under a lock.
    pub(super) fn keep_aside(&self, debt: &mut Debt<T>) {
        let mut freed = Freed::default();
        self.set_debt_apart(debt, &mut freed);
        self.free(&freed);
    }

    pub(super) fn free(&self, freed: &Freed) {
        if freed.room > 0 || freed.bytes > 0 {
            self.give_room(freed.room, freed.bytes);
        }
    }
}
