//! The only place that reads a clock.
//!
//! Decisions take `now` as an argument. The clock is that of the Tokio runtime on which the
//! dispatcher runs, so a test that pauses time pauses the engine too. Under the model checker time
//! stands still until a timer fires, which may be at any moment.

pub(crate) use std::time::Instant;

#[cfg(not(keylane_shuttle))]
use std::{
    future::Future,
    task::{Context, Poll},
};

/// Nanoseconds from one moment to a later one, as far as a word counts them.
#[inline]
pub(crate) fn nanos_since(epoch: Instant, now: Instant) -> u64 {
    let nanos = now.saturating_duration_since(epoch).as_nanos();
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// The time of the runtime the caller is in.
#[cfg(not(keylane_shuttle))]
#[inline]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The clock of one runtime, to be read from any thread: outside of every runtime, and in another
/// one whose time may be paused.
#[derive(Debug)]
pub(crate) struct RuntimeClock {
    /// `None` if its time is the system's: only a runtime of one thread can pause its time.
    #[cfg(not(keylane_shuttle))]
    runtime: Option<crate::rt::Handle>,
}

impl RuntimeClock {
    #[cfg(not(keylane_shuttle))]
    pub(crate) fn new(runtime: &crate::rt::Handle) -> Self {
        use tokio::runtime::RuntimeFlavor;
        let cannot_pause = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        Self {
            runtime: (!cannot_pause).then(|| runtime.clone()),
        }
    }

    #[cfg(not(keylane_shuttle))]
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match &self.runtime {
            Some(runtime) => {
                // Most callers are inside, and to enter costs twice as much as to ask.
                let is_inside = crate::rt::runtime().is_some_and(|is| is.id() == runtime.id());
                let _entered = (!is_inside).then(|| runtime.enter());
                now()
            }
            None => Instant::now(),
        }
    }

    #[cfg(keylane_shuttle)]
    pub(crate) fn new(_: &crate::rt::Handle) -> Self {
        Self {}
    }

    #[cfg(keylane_shuttle)]
    pub(crate) fn now(&self) -> Instant {
        now()
    }
}

/// Wakes its task at a time of its own; the heads in backoff share a wheel instead.
#[cfg(not(keylane_shuttle))]
#[derive(Debug)]
pub(crate) struct Alarm(std::pin::Pin<Box<tokio::time::Sleep>>);

#[cfg(not(keylane_shuttle))]
impl Alarm {
    pub(crate) fn new(at: Instant) -> Self {
        Self(Box::pin(tokio::time::sleep_until(at.into())))
    }

    pub(crate) fn reset(&mut self, at: Instant) {
        if self.0.deadline() != at.into() {
            self.0.as_mut().reset(at.into());
        }
    }

    /// Asks whatever is left of the task's budget: a handler that spends it all in each poll has a
    /// time-out too.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let alarm = tokio::task::coop::unconstrained(self.0.as_mut());
        std::pin::pin!(alarm).poll(cx)
    }
}

#[cfg(keylane_shuttle)]
pub(crate) use modelled::{Alarm, now, reach};

/// Time that stands still until a timer fires: a schedule must depend on nothing but the scheduler.
#[cfg(keylane_shuttle)]
mod modelled {
    use std::cell::Cell;
    use std::sync::LazyLock;
    use std::task::{Context, Poll};

    use super::Instant;
    use crate::rt;

    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    // The model checker runs all tasks of an execution on one thread.
    thread_local! {
        static NOW: Cell<Instant> = Cell::new(*ORIGIN);
    }

    #[inline]
    pub(crate) fn now() -> Instant {
        NOW.get()
    }

    /// The time is at least this from now on.
    pub(crate) fn reach(time: Instant) {
        NOW.set(NOW.get().max(time));
    }

    /// Goes off at any moment from the time it is first asked.
    #[derive(Debug)]
    pub(crate) struct Alarm(Instant);

    impl Alarm {
        pub(crate) fn new(at: Instant) -> Self {
            Self(at)
        }

        pub(crate) fn reset(&mut self, at: Instant) {
            self.0 = at;
        }

        pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            if rt::one_in(2) {
                reach(self.0);
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
}
