//! The timers of lanes.

use std::task::{Context, Poll};
#[cfg(not(keylane_shuttle))]
use std::time::Duration;

use keylane_rt::atomic::{AtomicUsize, Ordering};
use keylane_rt::clock::Instant;
use keylane_rt::{Handle, Mutex, lock};

/// The longest time in the wheel; a longer wait comes due here and is armed again.
///
/// The wheel holds 2^36 milliseconds and counts from the last time that anything was due, so this
/// leaves three quarters for how long ago that may be.
#[cfg(not(keylane_shuttle))]
const LONGEST: Duration = Duration::from_millis(1 << 34);

#[cfg(not(keylane_shuttle))]
use wheel::Wheel;

#[cfg(keylane_shuttle)]
use modelled::Wheel;

/// A timer for all lanes: a backoff costs an entry here and no sleeping task.
///
/// The timer belongs to the runtime of the dispatcher. It is armed inside that runtime, because the
/// wheel takes the timers and the clock of the runtime that it is touched in, and an operator may
/// call from a thread that has none, or another one.
#[derive(Debug)]
pub struct Timers<D> {
    /// There is none while nothing is armed: it is 6 KiB.
    wheel: Mutex<Option<Wheel<D>>>,
    runtime: Handle,
    /// Times are nanoseconds since then.
    epoch: Instant,
    /// How many timers are armed. At zero the router does not poll the wheel. Partner: the router's
    /// registration. The call that arms the first timer wakes the router after it has counted it.
    armed: AtomicUsize,
}

impl<D> Timers<D> {
    /// Returns a value without timers, on this runtime; times count from `epoch`.
    pub fn new(runtime: Handle, epoch: Instant) -> Self {
        Self {
            wheel: Mutex::new(None),
            runtime,
            epoch,
            armed: AtomicUsize::new(0),
        }
    }

    /// Arms a timer, in nanoseconds since the epoch. Returns `true` if the router was not polling
    /// the wheel, and must be woken.
    #[must_use = "the router may sleep"]
    pub fn arm(&self, due: D, at: u64) -> bool {
        let mut wheel = lock(&self.wheel);
        // Made anew after each idle time: an empty wheel counts from its last use, perhaps years
        // ago.
        let wheel = wheel.get_or_insert_with(|| Wheel::new(&self.runtime, self.epoch));
        wheel.insert(&self.runtime, due, at);
        self.armed.fetch_add(1, Ordering::SeqCst) == 0
    }

    /// Moves the due entries into `due`. Ready if there were any. For the router alone, a task of
    /// the runtime.
    pub fn poll_due(&self, cx: &mut Context<'_>, due: &mut Vec<D>) -> Poll<()> {
        if self.len() == 0 {
            return Poll::Pending;
        }
        let mut slot = lock(&self.wheel);
        let Some(wheel) = slot.as_mut() else {
            return Poll::Pending;
        };
        let before = due.len();
        wheel.take_due(cx, due);
        let expired = due.len() - before;
        if self.armed.fetch_sub(expired, Ordering::SeqCst) == expired {
            *slot = None;
        }
        if expired > 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Forgets every timer, for the end.
    pub fn clear(&self) {
        let mut wheel = lock(&self.wheel);
        *wheel = None;
        self.armed.store(0, Ordering::SeqCst);
    }

    /// Returns the number of armed timers.
    pub fn len(&self) -> usize {
        self.armed.load(Ordering::SeqCst)
    }
}

/// Tokio's timer wheel, which is asked once for all that is due in the same millisecond.
#[cfg(not(keylane_shuttle))]
mod wheel {
    use std::collections::BTreeMap;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use keylane_rt::clock::{self, Instant};
    use keylane_rt::{self as rt, Handle};
    use tokio_util::time::DelayQueue;

    use super::LONGEST;

    const NANOS_PER_TICK: u64 = 1_000_000;

    #[derive(Debug)]
    pub(super) struct Wheel<D> {
        /// Ticks are milliseconds since then, as the queue counts them.
        start: Instant,
        /// The start, in nanoseconds since the epoch.
        since_epoch: u64,
        /// The ticks in which something is due.
        ticks: DelayQueue<u64>,
        /// What is due in each of them, but for the latest one.
        due: BTreeMap<u64, Vec<D>>,
        /// The tick that was armed last, and what is due in it. Times often come in order, and many
        /// in the same millisecond.
        latest: (u64, Vec<D>),
    }

    impl<D> Wheel<D> {
        pub(super) fn new(runtime: &Handle, epoch: Instant) -> Self {
            // The queue rounds up to milliseconds since its own start. Counted from a moment before
            // that, and not after it, no time is rounded up twice.
            let (start, ticks) = rt::inside(runtime, || (clock::now(), DelayQueue::new()));
            Self {
                start,
                since_epoch: clock::nanos_since(epoch, start),
                ticks,
                due: BTreeMap::new(),
                latest: (0, Vec::new()),
            }
        }

        #[inline]
        pub(super) fn insert(&mut self, runtime: &Handle, due: D, at: u64) {
            let tick = at.saturating_sub(self.since_epoch).div_ceil(NANOS_PER_TICK);
            if tick != self.latest.0 || self.latest.1.is_empty() {
                self.turn_to(runtime, tick);
            }
            self.latest.1.push(due);
        }

        /// This tick is the latest one from now on.
        #[inline(never)]
        fn turn_to(&mut self, runtime: &Handle, tick: u64) {
            let next = self.due.remove(&tick);
            if next.is_none() {
                rt::inside(runtime, || {
                    let latest = clock::now() + LONGEST;
                    let at = self.start.checked_add(Duration::from_millis(tick));
                    let at = at.map_or(latest, |at| at.min(latest));
                    self.ticks.insert_at(tick, at.into());
                });
            }
            let next = (tick, next.unwrap_or_default());
            let (before, due) = std::mem::replace(&mut self.latest, next);
            if !due.is_empty() {
                self.due.insert(before, due);
            }
        }

        /// Takes what is due into `due`.
        pub(super) fn take_due(&mut self, cx: &mut Context<'_>, due: &mut Vec<D>) {
            while let Poll::Ready(Some(tick)) = self.ticks.poll_expired(cx) {
                let tick = tick.into_inner();
                if tick == self.latest.0 {
                    due.append(&mut self.latest.1);
                } else if let Some(mut expired) = self.due.remove(&tick) {
                    due.append(&mut expired);
                }
            }
        }
    }
}

/// A wheel without time: under the model checker every timer may fire at any moment.
#[cfg(keylane_shuttle)]
mod modelled {
    use std::task::{Context, Waker};
    use std::time::Duration;

    use keylane_rt::clock::{self, Instant};
    use keylane_rt::{self as rt, Handle};

    #[derive(Debug)]
    pub(super) struct Wheel<D> {
        epoch: Instant,
        armed: Vec<(u64, D)>,
        waker: Option<Waker>,
    }

    impl<D> Wheel<D> {
        pub(super) fn new(_: &Handle, epoch: Instant) -> Self {
            Self {
                epoch,
                armed: Vec::new(),
                waker: None,
            }
        }

        pub(super) fn insert(&mut self, _: &Handle, due: D, at: u64) {
            self.armed.push((at, due));
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }

        /// Fires the earliest timer at random, or else asks to be polled again.
        pub(super) fn take_due(&mut self, cx: &mut Context<'_>, due: &mut Vec<D>) {
            loop {
                let times = self.armed.iter().enumerate();
                let earliest = times.min_by_key(|(_, (at, _))| *at).map(|(index, _)| index);
                match earliest {
                    Some(index) if rt::one_in(2) => {
                        let (at, expired) = self.armed.remove(index);
                        clock::reach(self.epoch + Duration::from_nanos(at));
                        due.push(expired);
                    }
                    Some(_) => return cx.waker().wake_by_ref(),
                    None => {
                        self.waker = Some(cx.waker().clone());
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use std::task::Waker;

    use keylane_rt::clock;

    use super::*;

    fn timers() -> Timers<u8> {
        Timers::new(Handle::current(), clock::now())
    }

    /// What is due now; `None` if the router would sleep.
    fn due(timers: &Timers<u8>) -> Option<Vec<u8>> {
        // Something else is in it already.
        let mut due = vec![0];
        let mut cx = Context::from_waker(Waker::noop());
        let polled = timers.poll_due(&mut cx, &mut due);
        assert_eq!(due.remove(0), 0);
        match polled {
            Poll::Ready(()) => Some(due),
            Poll::Pending => {
                assert_eq!(due, []);
                None
            }
        }
    }

    const MILLI: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MILLI;

    #[tokio::test(start_paused = true)]
    async fn what_is_armed_is_due_at_its_time() {
        let timers = timers();
        assert_eq!((due(&timers), timers.len()), (None, 0));
        assert!(timers.arm(2, 2 * SECOND), "the router slept");
        assert!(!timers.arm(1, SECOND), "it asks already");
        assert!(!timers.arm(3, 2 * SECOND));
        assert_eq!((due(&timers), timers.len()), (None, 3));
        tokio::time::advance(Duration::from_millis(1_001)).await;
        assert_eq!((due(&timers), timers.len()), (Some(vec![1]), 2));
        assert_eq!(due(&timers), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((due(&timers), timers.len()), (Some(vec![2, 3]), 0));
        assert!(lock(&timers.wheel).is_none(), "nothing is armed");
        assert!(timers.arm(4, 0), "it sleeps again");
    }

    /// Those of one millisecond are one for the wheel, in whatever order they come.
    #[tokio::test(start_paused = true)]
    async fn a_millisecond_is_rounded_up() {
        let timers = timers();
        let times = [
            5 * MILLI,
            7 * MILLI,
            4 * MILLI + 1,
            7 * MILLI + 1,
            7 * MILLI,
        ];
        for (due, at) in (1..).zip(times) {
            let _ = timers.arm(due, at);
        }
        let mut seen = Vec::new();
        for _ in 0..10 {
            tokio::time::advance(Duration::from_millis(1)).await;
            seen.extend(due(&timers));
        }
        assert_eq!(seen, [vec![1, 3], vec![2, 5], vec![4]]);
        assert_eq!(timers.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_is_too_long_for_the_wheel_goes_off_before() {
        let timers = timers();
        assert!(timers.arm(1, 10 * 365 * 24 * 3600 * SECOND));
        assert_eq!(due(&timers), None);
        tokio::time::advance(LONGEST - Duration::from_secs(1)).await;
        assert_eq!(due(&timers), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(due(&timers), Some(vec![1]));
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_nothing_is_due() {
        let timers = timers();
        assert!(timers.arm(1, 0));
        timers.clear();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((due(&timers), timers.len()), (None, 0));
        assert!(timers.arm(2, 0), "the router sleeps");
    }
}
