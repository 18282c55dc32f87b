//! The permits of a process for one key, and how many it asks for. Pure: time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The settings of borrowing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Borrowing {
    /// Most permits to ask for beyond those of callers that wait.
    pub(super) most: u32,
    /// How long a permit may be used after the request for it.
    pub(super) keep: Duration,
}

/// The permits of one key.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// How many permits may be used until when, the earliest end first.
    permits: VecDeque<(Instant, u32)>,
    /// How many were used since `since`, and in the period before it, which is as long as a permit
    /// is kept.
    used: u32,
    used_before: u32,
    since: Option<Instant>,
    /// The server has no permit before this time.
    none_before: Option<Instant>,
}

impl Bucket {
    /// Takes a permit if there is one. Returns until when it may be used.
    pub(super) fn take(&mut self, now: Instant, borrowing: Borrowing) -> Option<Instant> {
        self.expire(now);
        let (until, count) = self.permits.front_mut()?;
        let until = *until;
        *count -= 1;
        if *count == 0 {
            self.permits.pop_front();
        }
        self.turn(now, borrowing);
        self.used = self.used.saturating_add(1);
        Some(until)
    }

    /// Puts back a permit that was taken and not used.
    pub(super) fn put_back(&mut self, until: Instant) {
        self.used = self.used.saturating_sub(1);
        self.put(until, 1);
    }

    /// Adds the permits that the server has granted to a call that was sent at this time.
    pub(super) fn granted(&mut self, count: u32, sent: Instant, borrowing: Borrowing) {
        if count > 0 {
            self.put(sent + borrowing.keep, count);
        }
    }

    /// Sets that the server has no more permits before this time.
    pub(super) fn none_before(&mut self, at: Instant) {
        self.none_before = Some(at);
    }

    /// How long the server has no permit, as far as is known.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let wait = self.none_before?.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }

    /// Returns how many permits to ask for while this many callers wait. 0: there is no need to
    /// ask.
    ///
    /// Beyond the callers that wait, it borrows as many permits as were used lately. It asks for
    /// them when half of them are left, so that later callers do not wait.
    pub(super) fn wanted(&mut self, waiting: u32, now: Instant, borrowing: Borrowing) -> u32 {
        self.expire(now);
        self.turn(now, borrowing);
        let left = self.left();
        let ahead = self.used.max(self.used_before).min(borrowing.most);
        let is_low = ahead > 0 && left <= ahead / 2 && self.used > 0;
        match waiting > left || is_low {
            true => waiting.saturating_add(ahead).saturating_sub(left),
            false => 0,
        }
    }

    /// Whether the bucket has no state that matters any more.
    pub(super) fn is_idle(&mut self, now: Instant, borrowing: Borrowing) -> bool {
        self.expire(now);
        self.turn(now, borrowing);
        self.permits.is_empty()
            && self.used == 0
            && self.used_before == 0
            && self.wait(now).is_none()
    }

    fn left(&self) -> u32 {
        let counts = self.permits.iter().map(|(_, count)| *count);
        counts.fold(0, u32::saturating_add)
    }

    fn put(&mut self, until: Instant, count: u32) {
        let at = self.permits.partition_point(|(other, _)| *other < until);
        match self.permits.get_mut(at) {
            Some((other, there)) if *other == until => *there = there.saturating_add(count),
            _ => self.permits.insert(at, (until, count)),
        }
    }

    fn expire(&mut self, now: Instant) {
        while self.permits.front().is_some_and(|(until, _)| *until <= now) {
            self.permits.pop_front();
        }
    }

    fn turn(&mut self, now: Instant, borrowing: Borrowing) {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed >= borrowing.keep {
            let is_next = passed < borrowing.keep * 2;
            self.used_before = if is_next { self.used } else { 0 };
            self.used = 0;
            self.since = Some(if is_next { since + borrowing.keep } else { now });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rate::spec::Limit;

    const KEEP: Duration = Duration::from_secs(1);

    fn borrowing(most: u32) -> Borrowing {
        Borrowing { most, keep: KEEP }
    }

    #[test]
    fn nothing_is_borrowed_for_the_first_time() {
        let (mut bucket, now) = (Bucket::default(), Instant::now());
        let borrowing = borrowing(10);
        assert_eq!(bucket.wanted(0, now, borrowing), 0);
        assert_eq!(bucket.wanted(3, now, borrowing), 3);
        bucket.granted(3, now, borrowing);
        for _ in 0..3 {
            assert_eq!(bucket.take(now, borrowing), Some(now + KEEP));
        }
        assert_eq!(bucket.take(now, borrowing), None);
        // Later it borrows as many as were used, up to the limit.
        assert_eq!(bucket.wanted(0, now, borrowing), 3);
        assert_eq!(bucket.wanted(1, now, borrowing), 4);
        assert_eq!(bucket.wanted(1, now, super::tests::borrowing(2)), 3);
        assert_eq!(bucket.wanted(1, now, super::tests::borrowing(0)), 1);
        assert_eq!(bucket.wanted(0, now, super::tests::borrowing(0)), 0);
    }

    #[test]
    fn more_is_borrowed_when_half_is_left() {
        let (mut bucket, now) = (Bucket::default(), Instant::now());
        let borrowing = borrowing(4);
        bucket.granted(10, now, borrowing);
        for left in (3..10).rev() {
            assert!(bucket.take(now, borrowing).is_some());
            assert_eq!(bucket.wanted(0, now, borrowing), 0, "{left} are left");
        }
        assert!(bucket.take(now, borrowing).is_some());
        assert_eq!(bucket.wanted(0, now, borrowing), 2);
    }

    #[test]
    fn permits_end_and_are_forgotten() {
        let (mut bucket, start) = (Bucket::default(), Instant::now());
        let borrowing = borrowing(4);
        bucket.granted(2, start, borrowing);
        let until = bucket.take(start, borrowing).unwrap();
        bucket.put_back(until);
        let last = start + KEEP - Duration::from_nanos(1);
        assert_eq!(bucket.take(last, borrowing), Some(until));
        assert_eq!(bucket.take(until, borrowing), None);
        assert!(!bucket.is_idle(until, borrowing));
        assert!(bucket.is_idle(start + KEEP * 3, borrowing));
        assert_eq!(bucket.wanted(0, start + KEEP * 3, borrowing), 0);
        bucket.none_before(start + KEEP * 5);
        assert_eq!(bucket.wait(start + KEEP * 4), Some(KEEP));
        assert!(!bucket.is_idle(start + KEEP * 4, borrowing));
        assert!(bucket.is_idle(start + KEEP * 5, borrowing));
    }

    /// The next event in one of the processes, after this many milliseconds.
    #[derive(Clone, Debug)]
    enum Event {
        /// This many callers come.
        Come(u32),
        /// The call reaches the server, or its answer arrives.
        Deliver,
        /// A caller with a permit is dropped before it knows.
        GiveUp,
        Dies,
    }

    fn events() -> impl Strategy<Value = Vec<(u64, usize, Event)>> {
        let event = prop_oneof![
            4 => (1..6_u32).prop_map(Event::Come),
            8 => Just(Event::Deliver),
            1 => Just(Event::GiveUp),
            1 => Just(Event::Dies),
        ];
        prop::collection::vec((0..120_u64, 0..3_usize, event), 1..200)
    }

    /// A call in progress: when it was sent, how many permits it asks for, and how many were
    /// granted.
    struct Call {
        sent: Instant,
        wanted: u32,
        granted: Option<u32>,
    }

    #[derive(Default)]
    struct Process {
        bucket: Bucket,
        waiting: u32,
        call: Option<Call>,
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(keylane_testkit::scenario::cases(256)))]

        /// Three processes and a server, with calls that take any time. The permits used in any
        /// window are within the bound, and each process has no more than it may borrow plus the
        /// callers that wait.
        #[test]
        fn processes_keep_to_the_rate(
            each in 20..400_u64,
            burst in 1..8_u32,
            most in 0..6_u32,
            events in events(),
        ) {
            let (limit, borrowing) = (Limit { each, burst }, borrowing(most));
            let start = Instant::now();
            let mut processes: [Process; 3] = Default::default();
            let (mut millis, mut word) = (0, 0);
            let (mut used, mut granted, mut asked) = (Vec::new(), 0_u32, 0_u32);
            for (gap, at, event) in events {
                millis += gap;
                let now = start + Duration::from_millis(millis);
                let process = &mut processes[at];
                match event {
                    Event::Come(count) => process.waiting += count,
                    Event::Deliver => match &mut process.call {
                        Some(call @ Call { granted: None, .. }) => {
                            let count = limit.take(&mut word, millis, call.wanted);
                            call.granted = Some(count);
                            granted += count;
                        }
                        Some(Call { sent, granted: Some(count), .. }) => {
                            process.bucket.granted(*count, *sent, borrowing);
                            process.call = None;
                        }
                        None => {}
                    },
                    Event::GiveUp => {
                        if let Some(until) = process.bucket.take(now, borrowing) {
                            prop_assert!(until > now);
                            process.bucket.put_back(until);
                        }
                    }
                    Event::Dies => *process = Process::default(),
                }
                while process.waiting > 0
                    && let Some(until) = process.bucket.take(now, borrowing)
                {
                    prop_assert!(until > now && until <= now + KEEP);
                    process.waiting -= 1;
                    used.push(millis);
                }
                let wanted = process.bucket.wanted(process.waiting, now, borrowing);
                prop_assert!(wanted <= process.waiting + most);
                if process.waiting > 0 {
                    prop_assert!(wanted > 0, "those who wait are asked for");
                }
                if process.call.is_none() && wanted > 0 {
                    asked += wanted;
                    process.call = Some(Call { sent: now, wanted, granted: None });
                }
            }
            prop_assert!(used.len() <= granted as usize && granted <= asked);
            let kept = KEEP.as_millis() as u64;
            for (i, from) in used.iter().enumerate() {
                for (j, to) in used.iter().enumerate().skip(i) {
                    let count = (j - i + 1) as u64;
                    let bound = u64::from(burst) + (to - from + kept) / each;
                    prop_assert!(count <= bound, "{count} from {from} to {to}, and not {bound}");
                }
            }
        }
    }
}
