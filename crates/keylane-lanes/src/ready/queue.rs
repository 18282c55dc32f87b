//! The jobs that wait for a runner, in the order in which they go.

use std::collections::VecDeque;

use keylane_rt::clock::Instant;

use super::order::ClassOrder;
use super::pace::Pace;
use crate::Gcra;

/// An entry of the ready queue.
pub trait Ranked {
    /// Returns how urgent it is; 0 is the most urgent.
    fn class(&self) -> u8;

    /// Returns whether it counts for the rate.
    fn counts(&self) -> bool;

    /// Returns whether neither its class nor a rate decides about it: it is no work of a handler,
    /// and has turns with what they choose.
    fn is_free(&self) -> bool {
        false
    }

    /// Returns when it is too late to start it, in nanoseconds since the epoch of the rules.
    fn expires_at(&self) -> Option<u64>;
}

/// Capacity, in jobs, that is never given back.
const MOST_KEPT: usize = 1_024;

/// First come, first served, unless priorities or a rate take precedence.
#[derive(Debug)]
pub(super) struct Jobs<T> {
    /// All of them, or with precedence, those of class 0.
    first: VecDeque<T>,
    /// Boxed, and asked for once per step: without precedence nothing else is looked at.
    precedence: Option<Box<Precedence<T>>>,
}

/// Priorities, a rate, or both.
#[derive(Debug)]
struct Precedence<T> {
    /// Those of class 1, 2 and so on.
    less_urgent: Vec<VecDeque<T>>,
    order: ClassOrder,
    pace: Option<Pace>,
    /// Those that are free; with a rate, also those that do not count for it, of all classes.
    free: VecDeque<T>,
    /// Whether a free one went last, when both could go.
    free_last: bool,
}

impl<T: Ranked> Jobs<T> {
    pub(super) fn new() -> Self {
        Self {
            first: VecDeque::new(),
            precedence: None,
        }
    }

    pub(super) fn set_precedence(&mut self, rate: Option<Gcra>, classes: u8) {
        let less_urgent = (1..classes).map(|_| VecDeque::new()).collect();
        self.precedence = Some(Box::new(Precedence {
            less_urgent,
            order: ClassOrder::default(),
            pace: rate.map(Pace::new),
            free: VecDeque::new(),
            free_last: false,
        }));
    }

    #[inline]
    pub(super) fn push(&mut self, job: T) {
        match &mut self.precedence {
            None => self.first.push_back(job),
            Some(precedence) => precedence.queue_of(&mut self.first, &job).push_back(job),
        }
    }

    #[inline]
    pub(super) fn extend(&mut self, jobs: impl Iterator<Item = T>) {
        match &self.precedence {
            None => self.first.extend(jobs),
            Some(_) => jobs.for_each(|job| self.push(job)),
        }
    }

    /// The next job that may go now.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.precedence.is_none() {
            return self.first.pop_front();
        }
        self.pop_by_precedence()
    }

    /// Whether more than their order decides about jobs.
    #[inline]
    pub(super) fn has_precedence(&self) -> bool {
        self.precedence.is_some()
    }

    /// The next job, where none has precedence.
    #[inline]
    pub(super) fn pop_first(&mut self) -> Option<T> {
        self.first.pop_front()
    }

    // Cold, here and below: most dispatchers have no precedence.
    #[cold]
    fn pop_by_precedence(&mut self) -> Option<T> {
        self.precedence.as_mut()?.pop(&mut self.first)
    }

    /// Gives back memory that a burst of jobs has left.
    ///
    /// Half of it at a time, and not before seven of eight places are empty: a queue that fills and
    /// empties again and again keeps what it has.
    #[inline]
    pub(super) fn shrink(&mut self) {
        let room = self.first.capacity();
        if room > MOST_KEPT && self.first.len() < room / 8 {
            self.first.shrink_to(room / 2);
        }
    }

    /// A runner that has the next job of its lane in hand would go on with it. Returns what it goes
    /// on with, or nothing if nothing may go now; the job waits here then.
    pub(super) fn go_on(&mut self, job: T) -> Option<T> {
        match &mut self.precedence {
            None => Some(job),
            Some(precedence) => precedence.go_on(&mut self.first, job),
        }
    }

    /// A runner takes the next job, and its own job goes behind the others. If the queue is empty,
    /// the runner gets its own job back.
    pub(super) fn rotate(&mut self, job: T) -> Option<T> {
        if self.precedence.is_none() && self.first.is_empty() {
            return Some(job);
        }
        self.push(job);
        self.pop()
    }

    /// How many wait.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match &self.precedence {
            None => self.first.len(),
            Some(precedence) => precedence.len(&self.first),
        }
    }

    /// How many wait that may start now.
    #[inline]
    pub(super) fn startable(&self) -> usize {
        match &self.precedence {
            None => self.first.len(),
            Some(precedence) => precedence.startable(&self.first),
        }
    }

    /// All of them, the most urgent first.
    pub(super) fn take_all(&mut self) -> VecDeque<T> {
        let mut all = VecDeque::new();
        self.queues_mut().for_each(|queue| all.append(queue));
        all
    }

    /// Takes out what is not to start from `now` on, in its order.
    pub(super) fn take_expired(&mut self, now: u64) -> Vec<T> {
        self.extract(|job| job.expires_at().is_some_and(|at| at <= now))
    }

    /// Takes out what is chosen, in its order.
    pub(super) fn extract(&mut self, chosen: impl Fn(&T) -> bool) -> Vec<T> {
        let mut out = Vec::new();
        for queue in self.queues_mut() {
            if queue.iter().any(&chosen) {
                let (taken, rest) = queue.drain(..).partition::<Vec<_>, _>(&chosen);
                out.extend(taken);
                queue.extend(rest);
            }
        }
        out
    }

    /// When the first of them expires.
    pub(super) fn first_expiry(&mut self) -> Option<u64> {
        let jobs = self.queues_mut().flat_map(|queue| queue.iter());
        jobs.filter_map(Ranked::expires_at).min()
    }

    fn queues_mut(&mut self) -> impl Iterator<Item = &mut VecDeque<T>> {
        let by_precedence = self.precedence.iter_mut().flat_map(|precedence| {
            let Precedence {
                less_urgent, free, ..
            } = &mut **precedence;
            less_urgent.iter_mut().chain([free])
        });
        std::iter::once(&mut self.first).chain(by_precedence)
    }

    /// When to call [`release`](Self::release), if a runner was refused.
    pub(super) fn refused_until(&self) -> Option<Instant> {
        self.precedence.as_ref()?.pace.as_ref()?.refused_until()
    }

    /// The time has come: runners may be recruited again.
    pub(super) fn release(&mut self) {
        if let Some(precedence) = &mut self.precedence
            && let Some(pace) = &mut precedence.pace
        {
            pace.release();
        }
    }
}

impl<T: Ranked> Precedence<T> {
    fn is_refusing(&self) -> bool {
        self.pace.as_ref().is_some_and(Pace::is_refusing)
    }

    fn class_of(&self, job: &T) -> usize {
        usize::from(job.class()).min(self.less_urgent.len())
    }

    fn queue<'a>(&'a mut self, first: &'a mut VecDeque<T>, class: usize) -> &'a mut VecDeque<T> {
        match class.checked_sub(1) {
            None => first,
            Some(index) => &mut self.less_urgent[index],
        }
    }

    #[cold]
    fn queue_of<'a>(&'a mut self, first: &'a mut VecDeque<T>, job: &T) -> &'a mut VecDeque<T> {
        if job.is_free() || (self.pace.is_some() && !job.counts()) {
            return &mut self.free;
        }
        let class = self.class_of(job);
        self.queue(first, class)
    }

    #[cold]
    fn startable(&self, first: &VecDeque<T>) -> usize {
        if self.is_refusing() {
            self.free.len()
        } else {
            self.len(first)
        }
    }

    #[cold]
    fn len(&self, first: &VecDeque<T>) -> usize {
        let less_urgent = self.less_urgent.iter().map(VecDeque::len).sum::<usize>();
        first.len() + less_urgent + self.free.len()
    }

    /// A bit for each class in which a job waits.
    fn waiting(&self, first: &VecDeque<T>) -> u8 {
        let queues = std::iter::once(first).chain(&self.less_urgent);
        queues.enumerate().fold(0, |bits, (class, queue)| {
            bits | u8::from(!queue.is_empty()) << class
        })
    }

    /// Both kinds take turns, so neither a rate nor a flood of free ones keeps the other from
    /// going.
    fn pop(&mut self, first: &mut VecDeque<T>) -> Option<T> {
        self.free_last = !self.free_last && !self.free.is_empty();
        if self.free_last {
            return self.free.pop_front();
        }
        let waiting = self.waiting(first);
        if waiting == 0 || self.pace.as_mut().is_some_and(|pace| !pace.allows()) {
            return self.free.pop_front();
        }
        let next = self.order.choose(waiting);
        self.queue(first, next).pop_front()
    }

    fn go_on(&mut self, first: &mut VecDeque<T>, job: T) -> Option<T> {
        if let Some(pace) = &mut self.pace {
            if !job.counts() {
                return Some(job);
            }
            if !pace.allows() {
                self.queue_of(first, &job).push_back(job);
                return None;
            }
        }
        // As if it stood at the front of its class: to go on is a choice like any other.
        let class = self.class_of(&job);
        let next = self.order.choose(self.waiting(first) | 1 << class);
        if next == class {
            return Some(job);
        }
        self.queue(first, class).push_back(job);
        self.queue(first, next).pop_front()
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        Attempt(u8),
        /// One that expires.
        Until(u64),
        Letter,
    }

    impl Ranked for Kind {
        fn class(&self) -> u8 {
            match self {
                Self::Attempt(class) => *class,
                Self::Until(_) | Self::Letter => 0,
            }
        }

        fn expires_at(&self) -> Option<u64> {
            match self {
                Self::Until(at) => Some(*at),
                Self::Attempt(_) | Self::Letter => None,
            }
        }

        fn counts(&self) -> bool {
            *self != Self::Letter
        }
    }

    use Kind::{Attempt, Letter, Until};

    fn waiting(
        rate: Option<Gcra>,
        classes: u8,
        jobs: impl IntoIterator<Item = Kind>,
    ) -> Jobs<Kind> {
        let mut waiting = Jobs::new();
        waiting.set_precedence(rate, classes);
        waiting.extend(jobs.into_iter());
        waiting
    }

    fn once_in_a_lifetime() -> Option<Gcra> {
        Some(Gcra::new(u64::MAX / 4, 1))
    }

    #[test]
    fn what_is_refused_waits_and_recruits_no_runner() {
        let mut waiting = waiting(once_in_a_lifetime(), 1, [Attempt(0); 3]);
        assert_eq!((waiting.len(), waiting.startable()), (3, 3));
        assert_eq!(waiting.pop(), Some(Attempt(0)));
        assert_eq!((waiting.startable(), waiting.refused_until()), (2, None));
        assert_eq!(waiting.pop(), None);
        assert!(waiting.refused_until().is_some());
        assert_eq!((waiting.len(), waiting.startable()), (2, 0));
        assert_eq!(waiting.go_on(Attempt(0)), None, "it waits too");
        assert_eq!(waiting.rotate(Attempt(0)), None, "and it");
        assert_eq!((waiting.len(), waiting.startable()), (4, 0));
        waiting.release();
        assert_eq!((waiting.startable(), waiting.refused_until()), (4, None));
        assert_eq!(waiting.take_all().len(), 4);
    }

    #[test]
    fn letters_go_while_attempts_are_refused_and_do_not_keep_them_from_going() {
        let jobs = [Attempt(0), Attempt(0), Letter, Letter, Letter];
        let mut refused = waiting(once_in_a_lifetime(), 1, jobs);
        let popped: Vec<_> = (0..6).map(|_| refused.pop()).collect();
        let (a, l) = (Some(Attempt(0)), Some(Letter));
        assert_eq!(popped, [l, a, l, l, None, None]);
        refused.push(Letter);
        assert_eq!((refused.len(), refused.startable()), (2, 1));
        assert_eq!(refused.go_on(Letter), l, "it has not asked");

        let mut granted = waiting(Some(Gcra::new(1, u32::MAX)), 1, jobs);
        let popped: Vec<_> = (0..6).map(|_| granted.pop()).collect();
        assert_eq!(popped, [l, a, l, a, l, None]);
    }

    #[test]
    fn what_has_expired_comes_out_of_all_queues_and_the_rest_keeps_its_order() {
        for (rate, classes) in [(None, 1), (None, 3), (once_in_a_lifetime(), 3)] {
            let jobs = [Until(7), Attempt(1), Until(3), Letter, Until(9), Until(3)];
            let mut waiting = waiting(rate, classes, jobs);
            assert_eq!(waiting.first_expiry(), Some(3));
            assert_eq!(waiting.take_expired(2), []);
            assert_eq!(waiting.take_expired(7), [Until(7), Until(3), Until(3)]);
            assert_eq!((waiting.first_expiry(), waiting.len()), (Some(9), 3));
            assert_eq!(waiting.take_expired(9), [Until(9)]);
            assert_eq!((waiting.first_expiry(), waiting.len()), (None, 2));
        }
    }

    #[test]
    fn memory_goes_back_by_halves_once_seven_eighths_are_empty() {
        let mut waiting = Jobs::new();
        let room_after = |waiting: &mut Jobs<Kind>, room, jobs| {
            waiting.first = VecDeque::with_capacity(room);
            waiting.extend((0..jobs).map(|_| Attempt(0)));
            assert_eq!(waiting.first.capacity(), room);
            waiting.shrink();
            waiting.first.capacity()
        };
        assert_eq!(room_after(&mut waiting, 8_192, 1_024), 8_192);
        assert_eq!(room_after(&mut waiting, 8_192, 1_023), 4_096);
        assert_eq!(
            room_after(&mut waiting, MOST_KEPT + 8, 0),
            MOST_KEPT / 2 + 4
        );
        assert_eq!(room_after(&mut waiting, MOST_KEPT, 0), MOST_KEPT);
        assert_eq!(room_after(&mut waiting, 8, 0), 8);
    }

    #[test]
    fn a_lane_goes_on_unless_a_more_urgent_one_waits() {
        let mut waiting = waiting(None, 3, [Attempt(2), Attempt(1)]);
        assert_eq!(waiting.go_on(Attempt(1)), Some(Attempt(1)));
        assert_eq!(waiting.go_on(Attempt(2)), Some(Attempt(1)));
        assert_eq!(waiting.len(), 2, "its own waits");
        assert_eq!(waiting.rotate(Attempt(0)), Some(Attempt(0)));
        assert_eq!(
            waiting.go_on(Attempt(1)),
            Some(Attempt(1)),
            "the others are less"
        );
        assert_eq!(waiting.take_all(), [Attempt(2), Attempt(2)]);
    }
}
