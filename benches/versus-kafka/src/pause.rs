//! Pauses nearly as exact as those of a thread that sleeps.
//!
//! Tokio's timers round up to whole milliseconds. A handler stands for a call to another service,
//! whose answer comes when it does, and Java's threads sleep to some 60 µs: with Tokio's timers the
//! contenders in Rust would do another work than those in Java.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Pauses end at multiples of this, so that one turn of the thread ends many of them.
const TICK: Duration = Duration::from_micros(100);

static TIMER: LazyLock<Timer> = LazyLock::new(|| {
    thread::spawn(|| TIMER.run());
    Timer {
        began: Instant::now(),
        waits: Mutex::default(),
        changes: Condvar::new(),
    }
});

struct Timer {
    began: Instant,
    waits: Mutex<Waits>,
    changes: Condvar,
}

#[derive(Default)]
struct Waits {
    next: u64,
    heap: BinaryHeap<Reverse<Wait>>,
}

struct Wait {
    until: Instant,
    number: u64,
    over: oneshot::Sender<()>,
}

/// Waits for so long.
pub async fn pause(time: Duration) {
    let until = TIMER.tick_after(Instant::now() + time);
    let (over, is_over) = oneshot::channel();
    TIMER.add(until, over);
    // The thread never ends.
    let _ = is_over.await;
}

impl Timer {
    fn tick_after(&self, at: Instant) -> Instant {
        let ticks = (at - self.began).as_nanos().div_ceil(TICK.as_nanos());
        self.began + TICK * u32::try_from(ticks).expect("no run takes days")
    }

    fn add(&self, until: Instant, over: oneshot::Sender<()>) {
        let mut waits = self.lock();
        waits.next += 1;
        let number = waits.next;
        waits.heap.push(Reverse(Wait {
            until,
            number,
            over,
        }));
        let is_first = waits
            .heap
            .peek()
            .is_some_and(|first| first.0.number == number);
        drop(waits);
        if is_first {
            self.changes.notify_one();
        }
    }

    fn run(&self) {
        let mut due = Vec::new();
        let mut waits = self.lock();
        loop {
            let now = Instant::now();
            while let Some(first) = waits.heap.peek()
                && first.0.until <= now
            {
                due.extend(waits.heap.pop());
            }
            if !due.is_empty() {
                drop(waits);
                for Reverse(wait) in due.drain(..) {
                    let _ = wait.over.send(());
                }
                waits = self.lock();
                continue;
            }
            let next = waits.heap.peek().map(|first| first.0.until - now);
            let next = next.unwrap_or(Duration::from_secs(3_600));
            let woken = self.changes.wait_timeout(waits, next);
            waits = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ord for Wait {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.until, self.number).cmp(&(other.until, other.number))
    }
}

impl PartialOrd for Wait {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Wait {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Wait {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pauses_end_in_the_order_of_their_ends() {
        let began = Instant::now();
        let ends = tokio::join!(
            async { (pause(Duration::from_millis(20)).await, Instant::now()).1 },
            async { (pause(Duration::from_millis(5)).await, Instant::now()).1 },
        );
        assert!(ends.0 > ends.1);
        assert!(ends.1 - began >= Duration::from_millis(5));
    }
}
