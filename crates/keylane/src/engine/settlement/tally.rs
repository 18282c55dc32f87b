//! Counts what has settled, and returns its room: many at once.

use super::Settlement;
use crate::engine::end::Stage;
use crate::engine::message::{Obligation, RoomState};
use crate::types::Spec;

/// Settlements whose room has not been returned yet.
///
/// A runner that settles many messages in a row returns their room together, and always before it
/// waits.
///
/// Small and without alignment, because each handler in flight has one.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(super) done: u8,
    room: u8,
    bytes: [u8; 4],
}

impl Tally {
    /// Most settlements before a flush. Each may wake a sender that waits for room, which costs as
    /// much as several messages.
    pub(crate) const MOST: u32 = 128;

    /// Adds the bytes of one message. False: a flush is needed first.
    #[inline]
    pub(super) fn add_bytes(&mut self, bytes: u32) -> bool {
        let sum = u32::from_ne_bytes(self.bytes).checked_add(bytes);
        if let Some(sum) = sum {
            self.bytes = sum.to_ne_bytes();
        }
        sum.is_some()
    }

    /// Takes the messages and bytes to return.
    #[inline]
    pub(super) fn take_room(&mut self) -> (usize, usize) {
        let bytes = u32::from_ne_bytes(std::mem::take(&mut self.bytes));
        (std::mem::take(&mut self.room).into(), bytes as usize)
    }

    /// Whether there is nothing to return.
    pub(crate) fn is_empty(&self) -> bool {
        self.done == 0 && self.room == 0 && self.bytes == [0; 4]
    }
}

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
