//! When the heads in backoff are due.

use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock::Instant;
use crate::rt::atomic::{AtomicUsize, Ordering};
use crate::rt::{self, Handle, Mutex, lock};

/// The longest time in the wheel; a longer wait comes due here and is armed again.
///
/// The wheel holds 2^36 milliseconds and counts from the last time that anything was due, so this
/// leaves three quarters for how long ago that may be.
const LONGEST: Duration = Duration::from_millis(1 << 34);

#[cfg(not(keylane_shuttle))]
type Wheel<D> = tokio_util::time::DelayQueue<D>;
#[cfg(keylane_shuttle)]
type Wheel<D> = modelled::DelayQueue<D>;

/// One timer for all lanes: a backoff costs an entry here and no sleeping task.
///
/// The timer belongs to the runtime of the dispatcher. It is armed inside that runtime, because the
/// wheel takes the timers and the clock of the runtime that it is touched in, and an operator may
/// call from a thread that has none, or another one.
#[derive(Debug)]
pub(crate) struct Timers<D> {
    /// There is none while nothing is armed: it is 6 KiB.
    wheel: Mutex<Option<Wheel<D>>>,
    runtime: Handle,
    /// How many are armed, so that a dispatcher without failures never asks the wheel. Partner of
    /// the router's registration: the call that arms the first one wakes the router after counting
    /// it.
    armed: AtomicUsize,
}

impl<D> Timers<D> {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self {
            wheel: Mutex::new(None),
            runtime,
            armed: AtomicUsize::new(0),
        }
    }

    /// Arms a timer. True: the router was not asking the wheel, and must be woken.
    ///
    /// May be called under a shard's lock: it wakes only the dispatcher's own task.
    #[must_use = "the router may sleep"]
    pub(crate) fn arm(&self, due: D, until: Instant, now: Instant) -> bool {
        let wait = until.saturating_duration_since(now).min(LONGEST);
        let mut wheel = lock(&self.wheel);
        // Made anew after each idle time: an empty wheel counts from its last use, perhaps years
        // ago.
        rt::inside(&self.runtime, || {
            wheel.get_or_insert_with(Wheel::new).insert(due, wait);
        });
        self.armed.fetch_add(1, Ordering::SeqCst) == 0
    }

    /// Takes what is due into `due`. Ready if anything was. For the router alone, a task of the
    /// runtime.
    pub(crate) fn poll_due(&self, cx: &mut Context<'_>, due: &mut Vec<D>) -> Poll<()> {
        if self.len() == 0 {
            return Poll::Pending;
        }
        let mut slot = lock(&self.wheel);
        let Some(wheel) = slot.as_mut() else {
            return Poll::Pending;
        };
        let before = due.len();
        while let Poll::Ready(Some(expired)) = wheel.poll_expired(cx) {
            due.push(expired.into_inner());
        }
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
    pub(crate) fn clear(&self) {
        let mut wheel = lock(&self.wheel);
        *wheel = None;
        self.armed.store(0, Ordering::SeqCst);
    }

    pub(crate) fn len(&self) -> usize {
        self.armed.load(Ordering::SeqCst)
    }
}

/// A wheel without time: under the model checker every timer may fire at any moment.
#[cfg(keylane_shuttle)]
mod modelled {
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use crate::clock::{self, Instant};
    use crate::rt;

    #[derive(Debug)]
    pub(super) struct DelayQueue<D> {
        armed: Vec<(Instant, D)>,
        waker: Option<Waker>,
    }

    impl<D> DelayQueue<D> {
        pub(super) fn new() -> Self {
            Self {
                armed: Vec::new(),
                waker: None,
            }
        }

        pub(super) fn insert(&mut self, due: D, wait: Duration) {
            self.armed.push((clock::now() + wait, due));
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }

        /// The earliest timer fires, or none yet: the die decides, and asks to be thrown again.
        pub(super) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Option<Expired<D>>> {
            let times = self.armed.iter().enumerate();
            let earliest = times.min_by_key(|(_, (until, _))| *until).map(|(at, _)| at);
            match earliest {
                Some(at) if rt::one_in(2) => {
                    let (until, due) = self.armed.remove(at);
                    clock::reach(until);
                    Poll::Ready(Some(Expired(due)))
                }
                Some(_) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                None => {
                    self.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }
    }

    pub(super) struct Expired<D>(D);

    impl<D> Expired<D> {
        pub(super) fn into_inner(self) -> D {
            self.0
        }
    }
}
