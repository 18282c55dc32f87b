//! Wakes a task from outside its runtime.
//!
//! A worker of Tokio's multi-threaded runtime waits for timers and sockets while it has nothing to
//! do, and the other workers sleep. If one task becomes ready then, the worker runs it and wakes no
//! other one to wait in its place. If that task blocks its thread, all timers and sockets of the
//! runtime stop, however many workers sleep, until something is woken from outside. One thread does
//! that here, for all runtimes of the process.

use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

/// Wakes its owner at regular times, from outside the runtime.
#[derive(Debug)]
pub struct Nudge(Option<Arc<Notify>>);

impl Nudge {
    /// Wakes with this period, until it is dropped. A runtime with one thread is left alone: if
    /// that thread is blocked, nothing can run.
    pub fn every(runtime: &Handle, period: Duration) -> Self {
        let has_others = runtime.runtime_flavor() != RuntimeFlavor::CurrentThread;
        let thread = has_others.then(|| THREAD.as_ref()).flatten();
        Self(thread.map(|thread| thread.add(period)))
    }

    /// Waits for the next time.
    ///
    /// # Cancel safety
    ///
    /// A dropped future may take a time with it.
    pub async fn nudged(&self) {
        match &self.0 {
            Some(notify) => notify.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Nudge {
    fn drop(&mut self) {
        if let (Some(notify), Some(thread)) = (&self.0, THREAD.as_ref()) {
            thread
                .lock()
                .retain(|nudged| !Arc::ptr_eq(&nudged.notify, notify));
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
    nudged: Mutex<Vec<Nudged>>,
    added: Condvar,
    epoch: Instant,
}

struct Nudged {
    notify: Arc<Notify>,
    period: Duration,
    next: Instant,
}

impl Thread {
    fn add(&self, period: Duration) -> Arc<Notify> {
        let period = period.max(Duration::from_millis(1));
        let notify = Arc::new(Notify::new());
        self.lock().push(Nudged {
            notify: Arc::clone(&notify),
            period,
            next: self.next(period),
        });
        self.added.notify_one();
        notify
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
        loop {
            let now = Instant::now();
            for one in nudged.iter_mut().filter(|one| one.next <= now) {
                one.notify.notify_one();
                one.next = self.next(one.period);
            }
            let first = nudged.iter().map(|one| one.next).min();
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

    fn lock(&self) -> MutexGuard<'_, Vec<Nudged>> {
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
            let nudge = Nudge::every(runtime.handle(), Duration::from_millis(5));
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

    #[tokio::test]
    async fn a_runtime_with_one_thread_is_left_alone() {
        assert!(
            Nudge::every(&Handle::current(), Duration::from_millis(1))
                .0
                .is_none()
        );
    }
}
