//! Which job starts next, and beside which others.

use std::cmp::Reverse;
use std::time::Duration;

/// How much runs at once: on two cores, one job that computes beside two that wait, or two that
/// compute. The tests of servers measure no time, but they meet their deadlines late beside more.
pub(crate) const CAPACITY: u32 = 2 * Load::Computes.weight();

/// What a job does most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// It needs a core.
    Computes,
    /// It waits: for servers, for the disk or for a clock.
    Waits,
}

impl Load {
    /// How much of the capacity it takes.
    pub(crate) const fn weight(self) -> u32 {
        match self {
            Load::Computes => 2,
            Load::Waits => 1,
        }
    }
}

/// What is known of a job before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) takes: Duration,
    pub(crate) load: Load,
}

impl Expected {
    /// Of a job that has never run: it counts as long, so that it does not start last.
    pub(crate) const UNKNOWN: Self = Self {
        takes: Duration::MAX,
        load: Load::Computes,
    };
}

/// Jobs that have not started yet, the longest first, and the capacity that is free.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    jobs: Vec<(Expected, T)>,
    capacity: u32,
    free: u32,
}

impl<T> Queue<T> {
    /// Jobs that are expected to take as long as each other stay in their order.
    pub(crate) fn new(mut jobs: Vec<(Expected, T)>, capacity: u32) -> Self {
        jobs.sort_by_key(|(expected, _)| Reverse(expected.takes));
        Self {
            jobs,
            capacity,
            free: capacity,
        }
    }

    /// Takes the longest job that has room beside those that run. Alone, each has room.
    pub(crate) fn start(&mut self) -> Option<(Load, T)> {
        let has_room = |&(expected, _): &(Expected, T)| {
            self.free == self.capacity || expected.load.weight() <= self.free
        };
        let next = self.jobs.iter().position(has_room)?;
        let (Expected { load, .. }, job) = self.jobs.remove(next);
        self.free = self.free.saturating_sub(load.weight());
        Some((load, job))
    }

    /// Gives back the room of a job that has ended.
    pub(crate) fn end(&mut self, load: Load) {
        self.free = (self.free + load.weight()).min(self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPUTES: Load = Load::Computes;
    const WAITS: Load = Load::Waits;

    fn queue(jobs: &[(u64, Load, &'static str)], capacity: u32) -> Queue<&'static str> {
        let job = |&(seconds, load, name): &(u64, Load, &'static str)| {
            let takes = Duration::from_secs(seconds);
            (Expected { takes, load }, name)
        };
        Queue::new(jobs.iter().map(job).collect(), capacity)
    }

    /// All that start now.
    fn started(queue: &mut Queue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.start().map(|(_, name)| name)).collect()
    }

    #[test]
    fn the_longest_starts_first_and_the_unknown_before_it() {
        let jobs = [(1, WAITS, "a"), (3, WAITS, "b"), (3, WAITS, "c")];
        let mut queue = queue(&jobs, 9);
        queue.jobs.insert(0, (Expected::UNKNOWN, "new"));
        let mut queue = Queue::new(queue.jobs, 9);
        assert_eq!(started(&mut queue), ["new", "b", "c", "a"]);
    }

    #[test]
    fn the_capacity_holds_one_that_computes_beside_four_that_wait_or_three() {
        let mixed = [9, 8, 7, 6, 5, 4].map(|seconds| (seconds, WAITS, "waits"));
        let mut all = vec![(10, COMPUTES, "computes"), (3, COMPUTES, "computes")];
        all.extend(mixed);
        let mut started_now = started(&mut queue(&all, CAPACITY));
        started_now.sort_unstable();
        assert_eq!(started_now, ["computes", "waits", "waits"]);
        let four = [4, 3, 2, 1].map(|seconds| (seconds, COMPUTES, "computes"));
        assert_eq!(started(&mut queue(&four, CAPACITY)).len(), 2);
    }

    #[test]
    fn a_job_without_room_is_passed_and_starts_when_there_is() {
        let jobs = [
            (9, COMPUTES, "long"),
            (8, COMPUTES, "next"),
            (2, WAITS, "short"),
        ];
        let mut queue = queue(&jobs, 3);
        assert_eq!(started(&mut queue), ["long", "short"]);
        queue.end(WAITS);
        assert_eq!(started(&mut queue), [""; 0]);
        queue.end(COMPUTES);
        assert_eq!(started(&mut queue), ["next"]);
    }

    #[test]
    fn alone_each_job_runs_and_one_after_the_other() {
        let jobs = [(2, COMPUTES, "a"), (1, COMPUTES, "b"), (1, WAITS, "c")];
        let mut queue = queue(&jobs, 1);
        for (load, name) in [(COMPUTES, "a"), (COMPUTES, "b"), (WAITS, "c")] {
            assert_eq!(started(&mut queue), [name]);
            queue.end(load);
        }
    }
}
