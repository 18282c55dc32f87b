//! So many and no more, and a line of those who wait.

use std::collections::VecDeque;

use super::waiter::{Stage, Waiter};
use crate::rt::atomic::{AtomicUsize, Ordering};
use crate::rt::{Arc, Mutex, OwnLine, lock};

/// Somebody stands in the line: who gives back looks there.
const LINE: usize = 1;
/// One that is free.
const ONE: usize = 2;
/// So many may always wait without asking for memory.
const SPARE: usize = 16;

/// A number of permits, given to one after the other.
///
/// Without a line, to take one and to give it back is one exchange each. With a line nobody takes one
/// past it.
#[derive(Debug)]
pub(super) struct Gate {
    limit: usize,
    /// Free permits, and [`LINE`]. Partner of each exchange: the last one.
    word: OwnLine<AtomicUsize>,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    waiters: VecDeque<Arc<Waiter>>,
    /// About how many of them have left.
    gone: usize,
    closed: bool,
}

impl Line {
    /// Sweeps out those who have left once they are the half of it, and gives their memory back.
    fn tidy(&mut self) {
        if self.gone > self.waiters.len() / 2 {
            self.waiters.retain(|waiter| waiter.stage() != Stage::Gone);
            self.gone = 0;
        }
        let used = self.waiters.len().max(SPARE);
        if self.waiters.capacity() / 4 > used {
            self.waiters.shrink_to(2 * used);
        }
    }
}

/// What came of asking for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a permit that was taken must be given back"]
pub(super) enum Asked {
    Taken,
    Waits,
    /// It had left before it came into the line.
    Gone,
    Closed,
}

impl Gate {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            word: OwnLine(AtomicUsize::new(limit * ONE)),
            line: Mutex::default(),
        }
    }

    /// Permits that are out.
    pub(super) fn taken(&self) -> usize {
        self.limit - self.word.load(Ordering::Relaxed) / ONE
    }

    /// Takes one if it is free and nobody waits for it.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word >= ONE && word & LINE == 0 {
            match self.exchange(word, word - ONE) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes one, or puts the waiter into the line.
    pub(super) fn take_or_wait(&self, waiter: &Arc<Waiter>) -> Asked {
        let mut line = lock(&self.line);
        if line.closed {
            return Asked::Closed;
        }
        if waiter.stage() != Stage::Called {
            return Asked::Gone;
        }
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let takes = word >= ONE && word & LINE == 0;
            let next = if takes { word - ONE } else { word | LINE };
            match self.exchange(word, next) {
                Ok(()) if takes => return Asked::Taken,
                Ok(()) => break,
                Err(now) => word = now,
            }
        }
        line.waiters.push_back(Arc::clone(waiter));
        Asked::Waits
    }

    /// Gives one back, to the first in the line if there is one.
    #[inline]
    pub(super) fn give(&self) {
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
                    Some(waiter) if waiter.shift(Stage::Called, Stage::Granted) => {
                        break Some(waiter);
                    }
                    Some(_) => line.gone = line.gone.saturating_sub(1),
                    None => break None,
                }
            };
            line.tidy();
            if granted.is_none() {
                self.word.fetch_add(ONE, Ordering::AcqRel);
            }
            if line.waiters.is_empty() && !cfg!(keylane_mutant = "line-for-ever") {
                self.word.fetch_and(!LINE, Ordering::AcqRel);
            }
            granted
        };
        if let Some(waiter) = granted {
            waiter.wake();
        }
    }

    /// Somebody leaves the line. False: it has been granted, or was sent home.
    pub(super) fn leave(&self, waiter: &Waiter) -> bool {
        let mut line = lock(&self.line);
        if !waiter.shift(Stage::Called, Stage::Gone) {
            return false;
        }
        line.gone += 1;
        // The flag stays: whoever gives one back next finds the line empty and takes it down.
        line.tidy();
        true
    }

    /// Sends everybody home, and takes nobody in any more.
    pub(super) fn close(&self) {
        let waiters = {
            let mut line = lock(&self.line);
            line.closed = true;
            std::mem::take(&mut line.waiters)
        };
        for waiter in waiters {
            if waiter.shift(Stage::Called, Stage::Recalled) {
                waiter.wake();
            }
        }
    }

    fn exchange(&self, from: usize, to: usize) -> Result<(), usize> {
        self.word
            .compare_exchange_weak(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .map(drop)
    }
}
