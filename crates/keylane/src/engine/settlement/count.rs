//! Counts what has settled, and returns its room.

use super::{Settlement, Tally};
use crate::engine::end::Stage;
use crate::engine::message::{Obligation, RoomState};
use crate::types::Spec;

impl<T: Spec> Settlement<T> {
    /// Returns the room that a tally has gathered, and counts what it has settled. True: the
    /// driver of a source was woken.
    pub(crate) fn flush(&self, tally: &mut Tally) -> bool {
        self.flush_room(tally);
        let done = std::mem::take(&mut tally.done);
        let woke = self.sources.wake();
        if done > 0 {
            self.probe.counters.done.add(u64::from(done));
        }
        if self.shutdown.stage() > Stage::Open {
            self.shutdown.wake_router();
        }
        woke
    }

    /// Returns the room of a tally. This happens before its messages are counted as settled: when
    /// all are counted, the dispatcher ends, and then all room must have been returned.
    pub(super) fn flush_room(&self, tally: &mut Tally) {
        let (room, bytes) = tally.take_room();
        self.room.give(room, bytes);
    }

    /// Flushes a tally if it is large enough. True: the driver of a source was woken.
    #[inline]
    pub(crate) fn flush_some(&self, tally: &mut Tally) -> bool {
        (u32::from(tally.room) >= self.most || u32::from(tally.done) >= self.most)
            && self.flush(tally)
    }

    #[inline]
    pub(super) fn return_room(&self, tally: &mut Tally, obligation: &mut Obligation<T>) {
        let charge = obligation.charge_mut();
        match std::mem::replace(&mut charge.standing, RoomState::Settled) {
            RoomState::Stalled => self.room.unstall(),
            RoomState::Counted => {
                tally.room += 1;
                let weight = charge.weight();
                if !tally.add_bytes(weight) {
                    self.room.give(0, weight as usize);
                }
            }
            RoomState::Settled => debug_assert!(false, "a message settles once"),
        }
    }
}
