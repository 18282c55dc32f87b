//! A fixed number of slots, and the line of those that wait for one.

use std::collections::VecDeque;

use keylane_rt::atomic::{AtomicUsize, Ordering};
use keylane_rt::{Arc, Mutex, OwnLine, lock};

use super::waiter::{Waiter, WaiterStage};

/// The bit that says that there is a line: a slot that is given back goes to the line first.
const LINE: usize = 1;
/// One free slot.
const ONE: usize = 2;
/// The line keeps memory for this many waiters even when it is empty.
const SPARE: usize = 16;

/// A fixed number of slots, given out first come, first served.
///
/// Without a line, a slot is taken and given back by one exchange each. With a line, no newcomer
/// takes a slot before those in the line.
#[derive(Debug)]
pub(super) struct Slots {
    capacity: usize,
    /// The free slots, and the bit [`LINE`]. Each exchange is the partner of the one before it, so
    /// that a thread that takes a slot sees what was done before it was given back. The flag is
    /// only set and cleared under the lock of the line.
    word: OwnLine<AtomicUsize>,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    waiters: VecDeque<Arc<Waiter>>,
    /// About how many of them have left: one that left just before it was put into the line is
    /// counted too.
    left: usize,
    closed: bool,
}

impl Line {
    /// Removes waiters that have left once they are more than half, and gives memory back.
    fn tidy(&mut self) {
        if self.left > self.waiters.len() / 2 {
            self.waiters
                .retain(|waiter| waiter.stage() != WaiterStage::Left);
            self.left = 0;
        }
        let used = self.waiters.len().max(SPARE);
        if self.waiters.capacity() / 4 > used {
            self.waiters.shrink_to(2 * used);
        }
    }
}

/// The result of asking for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a slot that was taken must be given back"]
pub(super) enum SlotAnswer {
    /// The caller has a slot.
    Now,
    /// The waiter is in the line.
    Later,
    /// The waiter had left before it was put into the line.
    Left,
    Closed,
}

impl Slots {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            word: OwnLine(AtomicUsize::new(capacity * ONE)),
            line: Mutex::default(),
        }
    }

    /// Slots that are taken. A snapshot: relaxed, because nothing follows from it.
    pub(super) fn in_use(&self) -> usize {
        self.capacity - self.word.load(Ordering::Relaxed) / ONE
    }

    /// Takes a slot if one is free and there is no line.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        // Relaxed: the exchange checks what was read here.
        let mut word = self.word.load(Ordering::Relaxed);
        while word >= ONE && word & LINE == 0 {
            match self.exchange(word, word - ONE) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes a slot, or puts the waiter into the line.
    pub(super) fn take_or_wait(&self, waiter: &Arc<Waiter>) -> SlotAnswer {
        let mut line = lock(&self.line);
        if line.closed {
            return SlotAnswer::Closed;
        }
        if waiter.stage() != WaiterStage::Queued {
            return SlotAnswer::Left;
        }
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let takes = word >= ONE && word & LINE == 0;
            let next = if takes { word - ONE } else { word | LINE };
            match self.exchange(word, next) {
                Ok(()) if takes => return SlotAnswer::Now,
                Ok(()) => break,
                Err(now) => word = now,
            }
        }
        line.waiters.push_back(Arc::clone(waiter));
        SlotAnswer::Later
    }

    /// Gives a slot back, to the first in the line if there is one.
    #[inline]
    pub(super) fn give_back(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & LINE == 0 {
            match self.exchange(word, word + ONE) {
                Ok(()) => return,
                Err(now) => word = now,
            }
        }
        self.give_to_line();
    }

    #[cold]
    fn give_to_line(&self) {
        let granted = {
            let mut line = lock(&self.line);
            let granted = loop {
                match line.waiters.pop_front() {
                    Some(waiter) if waiter.shift(WaiterStage::Queued, WaiterStage::Granted) => {
                        break Some(waiter);
                    }
                    Some(_) => line.left = line.left.saturating_sub(1),
                    None => break None,
                }
            };
            line.tidy();
            if granted.is_none() {
                self.word.fetch_add(ONE, Ordering::AcqRel);
            }
            if line.waiters.is_empty() {
                self.word.fetch_and(!LINE, Ordering::AcqRel);
            }
            granted
        };
        if let Some(waiter) = granted {
            waiter.wake();
        }
    }

    /// A waiter leaves the line. False: it was granted a slot, or failed by the close, before.
    pub(super) fn leave(&self, waiter: &Waiter) -> bool {
        let mut line = lock(&self.line);
        if !waiter.shift(WaiterStage::Queued, WaiterStage::Left) {
            return false;
        }
        line.left += 1;
        // The flag stays: the next slot that is given back finds the line empty and clears it.
        line.tidy();
        true
    }

    /// Fails all that wait, and lets no other waiter into the line.
    pub(super) fn close(&self) {
        let waiters = {
            let mut line = lock(&self.line);
            line.closed = true;
            std::mem::take(&mut line.waiters)
        };
        for waiter in waiters {
            if waiter.shift(WaiterStage::Queued, WaiterStage::ClosedQueued) {
                waiter.wake();
            }
        }
    }

    /// Acquire: sees what was done before the slot was given back. Release: shows it to the next.
    fn exchange(&self, from: usize, to: usize) -> Result<(), usize> {
        self.word
            .compare_exchange_weak(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
    }
}
