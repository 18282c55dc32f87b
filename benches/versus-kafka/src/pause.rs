//! Pauses as exact as those of a thread that sleeps.
//!
//! Tokio's timers round up to whole milliseconds. A handler stands for a call to another service,
//! whose answer comes when it does, and wakes the task from the runtime's own I/O driver. Java's
//! threads sleep to some 60 µs: with Tokio's timers the contenders in Rust would do another work than
//! those in Java.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// Pauses end at multiples of a tick, so that one turn of the task ends many of them. A tick is a tenth of
/// the pauses, and no less than this.
const SHORTEST_TICK: Duration = Duration::from_micros(100);

/// The longest pause has fewer ticks.
const TICKS: u64 = 1_024;

/// How many ticks of an idle process show how late a tick is seen.
const TRIALS: usize = 64;

thread_local! {
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Pauses of one runtime.
#[derive(Clone, Debug)]
pub struct Pauses(Arc<Ticks>);

#[derive(Debug)]
struct Ticks {
    tick: Duration,
    /// When tick 0 was.
    began: OnceLock<Instant>,
    /// How late an idle process sees a tick, in nanoseconds.
    late: AtomicU64,
    /// The last tick that has ended its pauses.
    last: AtomicU64,
    /// The pauses that end at each tick, by its number modulo [`TICKS`].
    ends: Vec<Notify>,
}

impl Pauses {
    /// For pauses of about so long.
    pub fn of(time: Duration) -> Self {
        Self(Arc::new(Ticks {
            tick: (time / 10).max(SHORTEST_TICK),
            began: OnceLock::new(),
            late: AtomicU64::new(0),
            last: AtomicU64::new(0),
            ends: (0..TICKS).map(|_| Notify::new()).collect(),
        }))
    }

    /// Starts the timer in this runtime, if it has not been. To be called while the process has
    /// nothing else to do: how late it sees a tick then is taken off each pause.
    pub fn start(&self) {
        self.began();
    }

    fn began(&self) -> Instant {
        *self.0.began.get_or_init(|| arm(Arc::clone(&self.0)))
    }

    /// Waits for so long, on average: it ends at the tick before or after, by a chance that makes up
    /// for the difference. With a fixed rule the time between a tick and the next pause would count
    /// for nothing, or for a whole tick.
    pub async fn pause(&self, time: Duration) {
        let began = self.began();
        let ticks = &*self.0;
        let late = Duration::from_nanos(ticks.late.load(Ordering::Relaxed));
        let end = began.elapsed() + time.saturating_sub(late) + ticks.tick.mul_f64(chance());
        let end = (end.as_nanos() / ticks.tick.as_nanos()) as u64;
        let over = ticks.ends[(end % TICKS) as usize].notified();
        // It hears of all ticks from here on, and this one may be over.
        if ticks.last.load(Ordering::Acquire) < end {
            over.await;
        }
    }
}

/// A number from 0 to 1: SplitMix64.
fn chance() -> f64 {
    let seed = RANDOM.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    RANDOM.set(seed);
    let mut z = seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

fn arm(ticks: Arc<Ticks>) -> Instant {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags).expect("Linux has timers");
    let every = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(ticks.tick.subsec_nanos()),
    };
    let times = Itimerspec {
        it_interval: every,
        it_value: every,
    };
    let began = Instant::now();
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times).expect("the times are valid");
    tokio::spawn(tick(timer, began, ticks));
    began
}

/// Ends pauses, for as long as the runtime runs.
async fn tick(timer: OwnedFd, began: Instant, ticks: Arc<Ticks>) {
    #[expect(
        deprecated,
        reason = "the new function is unsafe, because a type may name another file each time; this one does not"
    )]
    let timer = AsyncFd::new(timer).expect("a runtime with I/O");
    let tick_nanos = ticks.tick.as_nanos();
    let mut last = 0;
    let mut trials = Vec::with_capacity(TRIALS);
    loop {
        let mut ready = timer.readable().await.expect("the runtime runs");
        // How often it has expired does not matter.
        let _ = rustix::io::read(timer.get_ref(), &mut [0; 8]);
        ready.clear_ready();
        let elapsed = began.elapsed();
        let now = (elapsed.as_nanos() / tick_nanos) as u64;
        if trials.len() < TRIALS {
            trials.push((elapsed.as_nanos() % tick_nanos) as u64);
            trials.sort_unstable();
            ticks
                .late
                .store(trials[trials.len() / 2], Ordering::Relaxed);
        }
        for tick in last + 1..=now {
            ticks.last.store(tick, Ordering::Release);
            ticks.ends[(tick % TICKS) as usize].notify_waiters();
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pauses_end_in_the_order_of_their_ends() {
        let began = Instant::now();
        let pauses = Pauses::of(Duration::from_millis(1));
        let ends = tokio::join!(
            async {
                (
                    pauses.pause(Duration::from_millis(20)).await,
                    Instant::now(),
                )
                    .1
            },
            async { (pauses.pause(Duration::from_millis(5)).await, Instant::now()).1 },
        );
        assert!(ends.0 > ends.1);
        assert!(ends.1 - began >= Duration::from_millis(5) - 2 * SHORTEST_TICK);
    }
}
