//! Wakes a task from outside its runtime, and looks at what the runtime does.
//!
//! A worker of Tokio's multi-threaded runtime waits for timers and sockets while it has nothing to
//! do, and the other workers sleep. If one task becomes ready then, the worker runs it and wakes no
//! other one to wait in its place. If that task blocks its thread, all timers and sockets of the
//! runtime stop, however many workers sleep, until something is woken from outside. And if all
//! workers are blocked, no task can say so. One thread does both here, for all runtimes of the
//! process.

use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use crate::unwind::shielded;

/// Wakes its owner at regular times, from outside the runtime.
#[derive(Debug)]
pub struct Nudge {
    /// Its number at the thread; `None` if there is no thread.
    number: Option<u64>,
    notify: Option<Arc<Notify>>,
}

/// A function that the thread calls.
type Look = Arc<dyn Fn() + Send + Sync>;

impl Nudge {
    /// Wakes with this period, until it is dropped, and calls `look` each time. A runtime with one
    /// thread is not woken: if that thread is blocked, nothing can run.
    ///
    /// `look` runs on a thread outside all runtimes, which serves the whole process: it must not
    /// block. It may still run for a moment after this was dropped.
    pub fn every(
        runtime: &Handle,
        period: Duration,
        look: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let has_others = runtime.runtime_flavor() != RuntimeFlavor::CurrentThread;
        let notify = has_others.then(|| Arc::new(Notify::new()));
        let thread = THREAD.as_ref();
        Self {
            number: thread.map(|thread| thread.add(period, notify.clone(), Arc::new(look))),
            notify,
        }
    }

    /// Waits for the next time.
    ///
    /// # Cancel safety
    ///
    /// A dropped future may take a time with it.
    pub async fn nudged(&self) {
        match &self.notify {
            Some(notify) => notify.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Nudge {
    fn drop(&mut self) {
        if let (Some(number), Some(thread)) = (self.number, THREAD.as_ref()) {
            let mut nudged = thread.lock();
            let at = nudged.all.iter().position(|one| one.number == number);
            let gone = at.map(|at| nudged.all.swap_remove(at));
            // What its function owns may be dropped with it, which is not done under the lock.
            drop(nudged);
            drop(gone);
        }
    }
}

/// The thread, or `None` if the system does not start another one.
static THREAD: LazyLock<Option<Arc<Thread>>> = LazyLock::new(|| {
    let thread = Arc::new(Thread {
        nudged: Mutex::default(),
        added: Condvar::new(),
        epoch: Instant::now(),
    });
    let running = Arc::clone(&thread);
    let started = std::thread::Builder::new()
        .name("keylane-nudge".to_owned())
        .stack_size(64 << 10)
        .spawn(move || running.run());
    started.is_ok().then_some(thread)
});

struct Thread {
    nudged: Mutex<AllNudged>,
    added: Condvar,
    epoch: Instant,
}

#[derive(Default)]
struct AllNudged {
    all: Vec<Nudged>,
    last_number: u64,
}

struct Nudged {
    number: u64,
    notify: Option<Arc<Notify>>,
    look: Look,
    period: Duration,
    next: Instant,
}

/// A longer period would not fit into an instant.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl Thread {
    fn add(&self, period: Duration, notify: Option<Arc<Notify>>, look: Look) -> u64 {
        let period = period.clamp(Duration::from_millis(1), LONGEST);
        let mut nudged = self.lock();
        nudged.last_number += 1;
        let number = nudged.last_number;
        nudged.all.push(Nudged {
            number,
            notify,
            look,
            period,
            next: self.next(period),
        });
        drop(nudged);
        self.added.notify_one();
        number
    }

    /// The next multiple of the period: those with the same one are woken together.
    fn next(&self, period: Duration) -> Instant {
        let now = Instant::now();
        let since = now.duration_since(self.epoch).as_nanos() % period.as_nanos();
        now + period.saturating_sub(Duration::from_nanos(since as u64))
    }

    /// Without anything to wake, it sleeps.
    fn run(&self) {
        let mut nudged = self.lock();
        let mut looks = Vec::new();
        loop {
            let now = Instant::now();
            for one in nudged.all.iter_mut().filter(|one| one.next <= now) {
                if let Some(notify) = &one.notify {
                    notify.notify_one();
                }
                looks.push(Arc::clone(&one.look));
                one.next = self.next(one.period);
            }
            if !looks.is_empty() {
                drop(nudged);
                for look in looks.drain(..) {
                    // It may run code of the user.
                    shielded(|| {
                        look();
                        drop(look);
                    });
                }
                nudged = self.lock();
                continue;
            }
            let first = nudged.all.iter().map(|one| one.next).min();
            nudged = match first {
                None => self
                    .added
                    .wait(nudged)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(first) => {
                    let pause = first.saturating_duration_since(now);
                    let woken = self.added.wait_timeout(nudged, pause);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, AllNudged> {
        self.nudged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A task waits for a timer, and then blocks. The timer of another task comes nevertheless.
    #[test]
    fn a_blocked_worker_stops_no_timer() {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_time().build();
        let runtime = runtime.expect("a runtime");
        for _ in 0..5 {
            let (let_go, blocked) = mpsc::channel::<()>();
            let (late, fired) = mpsc::channel();
            let nudge = Nudge::every(runtime.handle(), Duration::from_millis(5), || {});
            runtime.spawn(async move {
                let due = tokio::time::sleep(Duration::from_millis(20));
                tokio::pin!(due);
                loop {
                    tokio::select! {
                        biased;
                        () = &mut due => break,
                        () = nudge.nudged() => {}
                    }
                }
                let _ = late.send(());
            });
            let blocks = runtime.spawn(async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                let _ = blocked.recv();
            });
            let fired = fired.recv_timeout(Duration::from_secs(120));
            drop(let_go);
            runtime.block_on(blocks).expect("it has ended");
            assert!(fired.is_ok(), "the timer did not come");
        }
    }

    /// No task of its runtime can run, and the thread looks all the same.
    #[tokio::test]
    async fn a_runtime_with_one_thread_is_not_woken_and_is_looked_at() {
        let (looked, seen) = mpsc::channel();
        let look = move || {
            let _ = looked.send(());
        };
        let nudge = Nudge::every(&Handle::current(), Duration::from_millis(1), look);
        assert!(nudge.notify.is_none());
        for _ in 0..3 {
            let looked = seen.recv_timeout(Duration::from_secs(120));
            looked.expect("the thread looks");
        }
        drop(nudge);
        // Its function is dropped, and with it the sender.
        let over = std::iter::repeat_with(|| seen.recv_timeout(Duration::from_secs(120)));
        let over = over.take_while(Result::is_ok).count();
        assert!(over < 1_000, "it still looks");
    }
}
