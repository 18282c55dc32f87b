//! What ends when: pure, time is an argument.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// Items with a number and a time.
#[derive(Debug)]
pub(crate) struct Timetable<T> {
    items: HashMap<u64, (Instant, T)>,
    order: BTreeSet<(Instant, u64)>,
}

impl<T> Timetable<T> {
    pub(crate) fn new() -> Self {
        Self {
            items: HashMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// Adds an item under a number that no other one has.
    pub(crate) fn insert(&mut self, number: u64, at: Instant, item: T) {
        self.items.insert(number, (at, item));
        self.order.insert((at, number));
    }

    pub(crate) fn get(&self, number: u64) -> Option<(Instant, &T)> {
        let (at, item) = self.items.get(&number)?;
        Some((*at, item))
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.items.get_mut(&number).map(|(_, item)| item)
    }

    /// Changes the time of an item, if it is there.
    pub(crate) fn move_to(&mut self, number: u64, at: Instant) {
        if let Some((was, _)) = self.items.get_mut(&number) {
            self.order.remove(&(*was, number));
            *was = at;
            self.order.insert((at, number));
        }
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let (at, item) = self.items.remove(&number)?;
        self.order.remove(&(at, number));
        Some(item)
    }

    /// Returns the numbers of the items whose time has come, in the order of their times.
    pub(crate) fn due(&self, now: Instant) -> Vec<u64> {
        let due = self.order.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, number)| *number).collect()
    }

    /// Returns the first time.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn items_are_due_in_the_order_of_their_times() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut table = Timetable::new();
        for (number, seconds) in [(1, 30), (2, 10), (3, 20)] {
            table.insert(number, at(seconds), ());
        }
        assert_eq!(table.first(), Some(at(10)));
        table.move_to(2, at(25));
        assert_eq!((table.first(), table.due(at(19))), (Some(at(20)), vec![]));
        assert_eq!(table.due(at(30)), [3, 2, 1]);
        assert_eq!(table.remove(3), Some(()));
        assert_eq!((table.remove(3), table.due(at(25))), (None, vec![2]));
    }
}
