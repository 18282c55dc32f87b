//! A naive turnstile: a list for each key, a line of heads, a line for room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Who is where, by number.
pub(crate) struct Naive {
    pub(crate) capacity: usize,
    pub(crate) concurrency: usize,
    lane_capacity: usize,
    /// Each one's key, and the lane of each key in the order of `enter`, whatever its stage.
    pub(crate) keys: BTreeMap<usize, Option<u64>>,
    pub(crate) lanes: BTreeMap<u64, VecDeque<usize>>,
    /// Heads, and those without a key, that wait for one of the turns.
    pub(crate) line: VecDeque<usize>,
    pub(crate) turns: BTreeSet<usize>,
    pub(crate) home: BTreeSet<usize>,
    /// Rooms that are given out, and those who wait for one; `true` once it is theirs.
    pub(crate) rooms: usize,
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
            turns: BTreeSet::new(),
            home: BTreeSet::new(),
            rooms: 0,
            waits: VecDeque::new(),
            closed: false,
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.keys.len() + self.rooms + self.waits.iter().filter(|wait| wait.1).count()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.used() < self.capacity
    }

    /// Room and turns go to those who are first, as long as there are some.
    pub(crate) fn settle(&mut self) {
        while self.has_room()
            && let Some(wait) = self.waits.iter_mut().find(|wait| !wait.1)
        {
            wait.1 = true;
        }
        while self.turns.len() < self.concurrency
            && let Some(first) = self.line.pop_front()
        {
            self.turns.insert(first);
        }
    }

    pub(crate) fn is_full(&self, key: u64) -> bool {
        let lane = self.lanes.get(&key);
        lane.is_some_and(|lane| lane.len() >= self.lane_capacity)
    }

    pub(crate) fn enter(&mut self, number: usize, key: Option<u64>) {
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

    pub(crate) fn leave(&mut self, number: usize) {
        let Some(key) = self.keys.remove(&number) else {
            panic!("{number} is not here");
        };
        let had_turn = self.turns.remove(&number);
        self.line.retain(|waits| *waits != number);
        self.home.remove(&number);
        // A turn that ends goes to the line, before the next of its key asks.
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
        let home = self
            .keys
            .keys()
            .filter(|number| !self.turns.contains(number));
        self.home = home.copied().collect();
        for lane in self.lanes.values_mut() {
            lane.retain(|number| !self.home.contains(number));
        }
        // Who was called is the head of its lane until it is gone: that does not show.
    }
}
