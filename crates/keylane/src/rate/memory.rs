//! The rates of keys that have nothing to do.

use std::collections::{HashMap, VecDeque};

use keylane_rt::{Arc, BuildPrehashed, Mutex, Semaphore, lock};

/// Most keys that are remembered unless their number cannot be held back: about 20 MB.
const KEYS: usize = 1 << 19;

/// Keys looked at in each step, to forget those whose rate has recovered. More than come in, so
/// that the ones that say nothing any more never pile up.
const LOOKED_AT: usize = 3;

/// The words of keys without a lane, until they say nothing any more.
///
/// A word belongs to the hash of its key. Two keys with the same 64 bits would share their rate.
///
/// What is remembered is bounded: at the limit, senders wait at a gate until enough is forgotten.
#[derive(Debug)]
pub(crate) struct RateMemory {
    capacity: usize,
    memory: Mutex<Words>,
}

#[derive(Debug, Default)]
struct Words {
    /// When the next message of a key is due in theory, in nanoseconds.
    words: HashMap<u64, u64, BuildPrehashed>,
    /// The hashes, in the order in which they are looked at.
    ring: VecDeque<u64>,
    /// The latest of all words: then nothing here says anything any more.
    latest: u64,
    /// The time for which a wake-up is armed.
    armed: Option<u64>,
    /// Where senders wait while too much is remembered.
    gate: Option<Arc<Semaphore>>,
    closed: bool,
}

/// What the caller must do when the lock of the shard is gone.
#[derive(Debug)]
#[must_use = "a wake-up must be armed, or nothing is forgotten"]
pub(crate) enum Remembered {
    Nothing,
    /// Ask to forget at this time, in nanoseconds.
    ForgetAt(u64),
}

impl RateMemory {
    pub(crate) fn new() -> Self {
        Self::with_capacity(KEYS)
    }

    fn with_capacity(capacity: usize) -> Self {
        Self {
            capacity,
            memory: Mutex::default(),
        }
    }

    /// A lane goes, and its key remembers this word.
    pub(crate) fn remember(&self, hash: u64, tat: u64, now: u64) -> Remembered {
        if tat <= now {
            return Remembered::Nothing;
        }
        let mut memory = lock(&self.memory);
        if memory.words.insert(hash, tat).is_none() {
            memory.ring.push_back(hash);
        }
        memory.forget_some(now);
        memory.latest = memory.latest.max(tat);
        if memory.words.len() >= self.capacity && memory.gate.is_none() && !memory.closed {
            memory.gate = Some(Arc::new(Semaphore::new(0)));
            return Remembered::ForgetAt(memory.soon(now));
        }
        if memory.armed.is_some() {
            return Remembered::Nothing;
        }
        memory.armed = Some(memory.latest);
        Remembered::ForgetAt(memory.latest)
    }

    /// The word of a key; 0 if it is not remembered, or says nothing any more.
    pub(crate) fn recall(&self, hash: u64, now: u64) -> u64 {
        let memory = lock(&self.memory);
        let word = memory.words.get(&hash).copied();
        word.filter(|tat| *tat > now).unwrap_or(0)
    }

    /// The time of a wake-up has come: forgets what says nothing any more. Returns the gate to
    /// close, at which senders wait, and when to come again.
    pub(crate) fn forget(&self, now: u64) -> (Option<Arc<Semaphore>>, Remembered) {
        let mut memory = lock(&self.memory);
        memory.armed = None;
        if memory.latest <= now {
            let gate = memory.gate.take();
            *memory = Words {
                closed: memory.closed,
                ..Words::default()
            };
            return (gate, Remembered::Nothing);
        }
        let mut gate = None;
        let mut at = memory.latest;
        // Without senders that wait, each new word sees to the old ones.
        if memory.gate.is_some() {
            for _ in 0..memory.ring.len() {
                memory.forget_one(now);
            }
            // Half of it, so that the next message does not close the gate again.
            let has_room = memory.words.len() <= self.capacity / 2;
            gate = memory.gate.take_if(|_| has_room);
            at = memory.soon(now);
        }
        memory.armed = Some(at);
        (gate, Remembered::ForgetAt(at))
    }

    /// Where senders wait, while as much is remembered as may be.
    pub(crate) fn gate(&self) -> Option<Arc<Semaphore>> {
        lock(&self.memory).gate.clone()
    }

    /// No more messages come: no sender has to wait. Returns the gate to close.
    pub(crate) fn close(&self) -> Option<Arc<Semaphore>> {
        let mut memory = lock(&self.memory);
        memory.closed = true;
        memory.gate.take()
    }
}

impl Words {
    /// When some of the words will say nothing any more, if they are spread evenly.
    fn soon(&self, now: u64) -> u64 {
        let wait = self.latest.saturating_sub(now) / 8;
        now.saturating_add(wait.max(1_000_000))
    }

    fn forget_some(&mut self, now: u64) {
        for _ in 0..LOOKED_AT.min(self.ring.len()) {
            self.forget_one(now);
        }
    }

    /// Looks at one key: it is forgotten, or goes to the end of the ring.
    fn forget_one(&mut self, now: u64) {
        let Some(hash) = self.ring.pop_front() else {
            return;
        };
        if self.words.get(&hash).is_some_and(|tat| *tat > now) {
            self.ring.push_back(hash);
        } else {
            self.words.remove(&hash);
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    fn forget_at(remembered: Remembered) -> Option<u64> {
        match remembered {
            Remembered::Nothing => None,
            Remembered::ForgetAt(at) => Some(at),
        }
    }

    #[test]
    fn a_word_is_recalled_until_it_says_nothing() {
        let memory = RateMemory::new();
        assert_eq!(forget_at(memory.remember(7, 100, 10)), Some(100));
        assert_eq!(memory.recall(7, 99), 100);
        assert_eq!(memory.recall(7, 100), 0);
        assert_eq!(memory.recall(8, 10), 0, "another key");
        assert_eq!(
            forget_at(memory.remember(9, 10, 10)),
            None,
            "it says nothing"
        );
        assert_eq!(memory.recall(9, 0), 0);
    }

    #[test]
    fn a_newer_word_takes_the_place_of_the_older() {
        let memory = RateMemory::new();
        let _ = memory.remember(7, 100, 10);
        assert_eq!(forget_at(memory.remember(7, 300, 20)), None, "one is armed");
        assert_eq!(memory.recall(7, 200), 300);
        let (gate, next) = memory.forget(100);
        assert!(gate.is_none());
        assert_eq!(forget_at(next), Some(300));
        assert_eq!(memory.recall(7, 200), 300);
        let (_, next) = memory.forget(300);
        assert_eq!(forget_at(next), None);
        assert!(lock(&memory.memory).words.is_empty());
        assert_eq!(forget_at(memory.remember(7, 500, 400)), Some(500));
    }

    #[test]
    fn what_has_recovered_is_forgotten_on_the_way() {
        let memory = RateMemory::new();
        for hash in 0..10_000 {
            let _ = memory.remember(hash, hash + 100, hash);
            let left = lock(&memory.memory).words.len();
            assert!(left <= 151, "{left} words for 100 that say something");
        }
        let memory = lock(&memory.memory);
        assert_eq!(memory.words.len(), memory.ring.len());
    }

    #[test]
    fn at_the_limit_there_is_a_gate_until_half_is_forgotten() {
        let (memory, second) = (RateMemory::with_capacity(4), 1_000_000_000);
        for hash in 1..=4 {
            assert!(memory.gate().is_none());
            let _ = memory.remember(hash, hash * second, 0);
        }
        let gate = memory.gate().expect("it is full");
        let (closed, next) = memory.forget(second);
        assert!(closed.is_none() && memory.gate().is_some());
        assert_eq!(forget_at(next), Some(second + second * 3 / 8), "soon");
        let (closed, next) = memory.forget(2 * second);
        assert!(closed.is_some_and(|closed| Arc::ptr_eq(&closed, &gate)));
        assert!(memory.gate().is_none(), "half has recovered");
        assert!(forget_at(next).is_some());
        assert_eq!(memory.recall(3, 2 * second), 3 * second);
    }

    #[test]
    fn at_the_end_no_sender_waits_and_rates_hold() {
        let memory = RateMemory::with_capacity(1);
        let _ = memory.remember(1, 100, 10);
        assert!(memory.close().is_some());
        let _ = memory.remember(2, 100, 10);
        assert!(memory.gate().is_none());
        assert_eq!(memory.recall(1, 10), 100);
        let (closed, next) = memory.forget(100);
        assert!(closed.is_none() && forget_at(next).is_none());
        let _ = memory.remember(3, 300, 200);
        assert!(memory.gate().is_none(), "it is still the end");
    }
}
