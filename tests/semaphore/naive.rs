//! A naive keyed semaphore: a list for each key, a line of heads, a line for capacity.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where each waiter is, by number.
pub(crate) struct Naive {
    pub(crate) capacity: usize,
    pub(crate) concurrency: usize,
    lane_capacity: usize,
    /// The key of each waiter and permit.
    pub(crate) keys: BTreeMap<usize, Option<u64>>,
    /// The waiters of each key in the order of `acquire`, whatever their stage.
    pub(crate) lanes: BTreeMap<u64, VecDeque<usize>>,
    /// Heads, and waiters without a key, that wait for a permit.
    pub(crate) line: VecDeque<usize>,
    pub(crate) permits: BTreeSet<usize>,
    /// Waiters that failed by the close.
    pub(crate) failed: BTreeSet<usize>,
    /// How many reservations are given out.
    pub(crate) reservations: usize,
    /// Those that wait for a reservation; `true` once it was granted.
    pub(crate) waits: VecDeque<(usize, bool)>,
    pub(crate) closed: bool,
}

impl Naive {
    pub(crate) fn new(capacity: usize, concurrency: usize, lane_capacity: usize) -> Self {
        Self {
            capacity,
            concurrency,
            lane_capacity,
            keys: BTreeMap::new(),
            lanes: BTreeMap::new(),
            line: VecDeque::new(),
            permits: BTreeSet::new(),
            failed: BTreeSet::new(),
            reservations: 0,
            waits: VecDeque::new(),
            closed: false,
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.keys.len() + self.reservations + self.waits.iter().filter(|wait| wait.1).count()
    }

    pub(crate) fn has_capacity(&self) -> bool {
        self.used() < self.capacity
    }

    /// Capacity and permits go to those that are first, until all are given out.
    pub(crate) fn settle(&mut self) {
        while self.has_capacity()
            && let Some(wait) = self.waits.iter_mut().find(|wait| !wait.1)
        {
            wait.1 = true;
        }
        while self.permits.len() < self.concurrency
            && let Some(first) = self.line.pop_front()
        {
            self.permits.insert(first);
        }
    }

    pub(crate) fn is_full(&self, key: u64) -> bool {
        let lane = self.lanes.get(&key);
        lane.is_some_and(|lane| lane.len() >= self.lane_capacity)
    }

    pub(crate) fn acquire(&mut self, number: usize, key: Option<u64>) {
        self.keys.insert(number, key);
        let is_head = key.is_none_or(|key| {
            let lane = self.lanes.entry(key).or_default();
            lane.push_back(number);
            lane.len() == 1
        });
        if is_head {
            self.line.push_back(number);
        }
        self.settle();
    }

    /// Whether a permit of this key can be had without waiting.
    pub(crate) fn is_free(&self, key: u64) -> bool {
        self.has_capacity()
            && !self.lanes.contains_key(&key)
            && self.permits.len() < self.concurrency
    }

    pub(crate) fn leave(&mut self, number: usize) {
        let Some(key) = self.keys.remove(&number) else {
            panic!("{number} is not here");
        };
        let had_turn = self.permits.remove(&number);
        self.line.retain(|waits| *waits != number);
        self.failed.remove(&number);
        // A permit that is given back goes to the line, before the next of its key is queued.
        if had_turn {
            self.settle();
        }
        if let Some(key) = key {
            let lane = self.lanes.get_mut(&key).unwrap();
            let was_head = lane.front() == Some(&number);
            lane.retain(|there| *there != number);
            let next = lane.front().copied();
            if lane.is_empty() {
                self.lanes.remove(&key);
            }
            if let Some(next) = next.filter(|_| was_head && !self.closed) {
                self.line.push_back(next);
            }
        }
        self.settle();
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.waits.retain(|wait| wait.1);
        self.line.clear();
        let failed = self
            .keys
            .keys()
            .filter(|number| !self.permits.contains(number));
        self.failed = failed.copied().collect();
        for lane in self.lanes.values_mut() {
            lane.retain(|number| !self.failed.contains(number));
        }
        // A queued waiter stays the head of its lane until it is dropped. That cannot be observed.
    }
}
