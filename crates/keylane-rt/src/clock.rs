//! The only place that reads a clock.
//!
//! Decisions take `now` as an argument. The clock is that of the Tokio runtime on which the
//! dispatcher runs, so a test that pauses time pauses the engine too. Under the model checker time
//! stands still until a timer fires, which may be at any moment.

pub use std::time::Instant;

#[cfg(not(keylane_shuttle))]
use std::{
    future::Future,
    task::{Context, Poll},
};

/// Returns the nanoseconds from one moment to a later one, as far as a `u64` counts them.
#[inline]
pub fn nanos_since(epoch: Instant, now: Instant) -> u64 {
    let nanos = now.saturating_duration_since(epoch).as_nanos();
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// Returns the time of the caller's runtime.
#[cfg(not(keylane_shuttle))]
#[inline]
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Counts time in ticks of some eight milliseconds, for what is asked for each message: to read the
/// clock costs a tenth of what a message costs.
///
/// On Linux it reads the coarse clock of the kernel, which costs a sixth of that. Where the time of
/// the runtime can be paused, it reads that.
#[derive(Debug)]
pub struct Ticker {
    epoch: Instant,
    #[cfg(all(target_os = "linux", not(keylane_shuttle)))]
    coarse: Option<u64>,
}

/// Some eight milliseconds, since the epoch of a [`Ticker`].
///
/// After 200 days they are at their end, and then no time is before another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(u32);

/// Of how many nanoseconds there are in a tick.
const TICK_LOG2: u32 = 23;

/// In ticks, how far the coarse clock may be behind the exact one: a hundredth of a second where
/// the kernel looks at it most seldom.
#[cfg(all(target_os = "linux", not(keylane_shuttle)))]
const COARSE_LAG: u32 = 2;

impl Ticker {
    /// Returns a ticker that counts from now.
    pub fn new(_runtime: &crate::Handle) -> Self {
        Self {
            epoch: now(),
            #[cfg(all(target_os = "linux", not(keylane_shuttle)))]
            coarse: cannot_pause(_runtime).then(coarse_nanos),
        }
    }

    /// Returns the tick of this moment, or one that is up to 25 milliseconds later.
    #[inline]
    pub fn now(&self) -> Tick {
        #[cfg(all(target_os = "linux", not(keylane_shuttle)))]
        if let Some(epoch) = self.coarse {
            let Tick(tick) = Tick::of(coarse_nanos().saturating_sub(epoch));
            return Tick(tick.saturating_add(COARSE_LAG));
        }
        self.at(now())
    }

    /// Returns the tick of this time.
    pub fn at(&self, time: Instant) -> Tick {
        Tick::of(nanos_since(self.epoch, time))
    }
}

impl Tick {
    /// A bit is left for other things.
    const MOST: u32 = u32::MAX >> 1;

    #[inline]
    fn of(nanos: u64) -> Self {
        let most = Self::MOST;
        Self(u32::try_from(nanos >> TICK_LOG2).map_or(most, |tick| tick.min(most)))
    }

    /// Returns its number, up to `i32::MAX`, or a little more if it is the tick of a moment.
    #[inline]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// What the coarse clock says, which counts from the same moment as the exact one.
#[cfg(all(target_os = "linux", not(keylane_shuttle)))]
#[inline]
fn coarse_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    // Never negative: since the start of the machine.
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether the time of a runtime is the system's: only one of one thread can pause its time.
#[cfg(not(keylane_shuttle))]
fn cannot_pause(runtime: &crate::Handle) -> bool {
    runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread
}

/// The clock of one runtime. It can be read from any thread, outside of every runtime, and in
/// another runtime whose time may be paused.
#[derive(Debug)]
pub struct RuntimeClock {
    /// `None` if its time is the system's.
    #[cfg(not(keylane_shuttle))]
    runtime: Option<crate::Handle>,
}

impl RuntimeClock {
    /// Returns the clock of this runtime.
    #[cfg(not(keylane_shuttle))]
    pub fn new(runtime: &crate::Handle) -> Self {
        Self {
            runtime: (!cannot_pause(runtime)).then(|| runtime.clone()),
        }
    }

    /// Returns the time of the runtime.
    #[cfg(not(keylane_shuttle))]
    #[inline]
    pub fn now(&self) -> Instant {
        match &self.runtime {
            Some(runtime) => {
                // Most callers are inside, and to enter costs twice as much as to ask.
                let is_inside = crate::runtime().is_some_and(|is| is.id() == runtime.id());
                let _entered = (!is_inside).then(|| runtime.enter());
                now()
            }
            None => Instant::now(),
        }
    }

    /// Returns the clock of the model.
    #[cfg(keylane_shuttle)]
    pub fn new(_: &crate::Handle) -> Self {
        Self {}
    }

    /// Returns the time of the model.
    #[cfg(keylane_shuttle)]
    pub fn now(&self) -> Instant {
        now()
    }
}

/// An alarm that wakes its task at its own time; the heads in backoff share a wheel instead.
#[cfg(not(keylane_shuttle))]
#[derive(Debug)]
pub struct Alarm(std::pin::Pin<Box<tokio::time::Sleep>>);

#[cfg(not(keylane_shuttle))]
impl Alarm {
    /// Returns an alarm that goes off at this time.
    pub fn new(at: Instant) -> Self {
        Self(Box::pin(tokio::time::sleep_until(at.into())))
    }

    /// Sets another time.
    pub fn reset(&mut self, at: Instant) {
        if self.0.deadline() != at.into() {
            self.0.as_mut().reset(at.into());
        }
    }

    /// Returns `Ready` once the alarm goes off, also when the task's budget is spent: a handler
    /// that spends all of it in each poll has a time-out too.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let alarm = tokio::task::coop::unconstrained(self.0.as_mut());
        std::pin::pin!(alarm).poll(cx)
    }
}

#[cfg(keylane_shuttle)]
pub use modelled::{Alarm, now, reach};

/// Time that stands still until a timer fires: a schedule must depend on nothing but the scheduler.
#[cfg(keylane_shuttle)]
mod modelled {
    use std::cell::Cell;
    use std::sync::LazyLock;
    use std::task::{Context, Poll};

    use super::Instant;
    use crate as rt;

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    // The model checker runs all tasks of an execution on one thread.
    thread_local! {
        static NOW: Cell<Instant> = Cell::new(*ORIGIN);
    }

    /// Returns the time of the model.
    #[inline]
    pub fn now() -> Instant {
        NOW.get()
    }

    /// Moves the time to at least this one.
    pub fn reach(time: Instant) {
        NOW.set(NOW.get().max(time));
    }

    /// Goes off at any moment from the time it is first asked.
    #[derive(Debug)]
    pub struct Alarm(Instant);

    impl Alarm {
        /// Goes off at any moment, and it is this time then.
        pub fn new(at: Instant) -> Self {
            Self(at)
        }

        /// Sets another time.
        pub fn reset(&mut self, at: Instant) {
            self.0 = at;
        }

        /// Returns `Ready` once it goes off.
        pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            if rt::one_in(2) {
                reach(self.0);
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
}

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Handle;

    /// A tick that is early would have a lease last longer than it does.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_tick_of_a_moment_is_never_before_it() {
        let ticker = Ticker::new(&Handle::current());
        let end = now() + Duration::from_millis(200);
        while now() < end {
            let exact = ticker.at(now());
            let tick = ticker.now();
            assert!(tick >= exact, "{tick:?} is before {exact:?}");
            assert!(tick.number() <= ticker.at(now()).number() + 4);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_tick_follows_the_time_that_is_paused() {
        let ticker = Ticker::new(&Handle::current());
        tokio::time::advance(Duration::from_secs(24 * 3_600)).await;
        assert_eq!(ticker.now(), ticker.at(now()));
        assert_eq!(
            ticker.now().number(),
            86_400_000_000_000_u64.wrapping_shr(23) as u32
        );
    }
}
