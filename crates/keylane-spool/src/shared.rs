//! The core behind its lock, and the tasks that wait for it.

use std::pin::pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::core::{Core, Stage, Wants, Work};

/// The core behind its lock. No code of the user runs under the lock: tasks are woken after it.
#[derive(Debug)]
pub(super) struct Shared {
    /// In logs and metrics.
    pub(super) name: String,
    core: Mutex<Core>,
    /// The writer waits here.
    work: Condvar,
    /// The driver waits here.
    pub(super) driver: Notify,
    /// The first push that waits for room waits here.
    pub(super) room: Notify,
    /// The pushes behind it wait here, in their order.
    pub(super) queue: tokio::sync::Mutex<()>,
    /// Flushes and ends wait here.
    settled: Notify,
}

impl Shared {
    pub(super) fn new(core: Core, name: String) -> Self {
        Self {
            name,
            core: Mutex::new(core),
            work: Condvar::new(),
            driver: Notify::new(),
            room: Notify::new(),
            queue: tokio::sync::Mutex::new(()),
            settled: Notify::new(),
        }
    }

    /// Reads or changes the core, and wakes the tasks that this concerns.
    pub(super) fn with<R>(&self, run: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = self.lock();
        let result = run(&mut core);
        let (wakes, answers) = core.take_effects();
        drop(core);
        if wakes.journal {
            self.work.notify_one();
        }
        if wakes.driver {
            self.driver.notify_one();
        }
        if wakes.room {
            self.room.notify_one();
        }
        if wakes.settled {
            self.settled.notify_waiters();
        }
        for answer in answers {
            // The caller of a push may be gone.
            let _ = answer.to.send(answer.result);
        }
        result
    }

    /// Waits until the core has an answer. Asks again whenever a message has settled.
    pub(super) async fn until<R>(&self, mut ask: impl FnMut(&mut Core) -> Option<R>) -> R {
        loop {
            let mut settled = pin!(self.settled.notified());
            // Registered before the question, so that no change in between is missed.
            settled.as_mut().enable();
            if let Some(answer) = self.with(&mut ask) {
                return answer;
            }
            settled.await;
        }
    }

    /// Blocks the writer until there is work. Returns `None` when there never will be any.
    ///
    /// Removals wait up to `linger` for urgent work. After a failure the writer rests for `pause`,
    /// unless the spool stops. After `idle` without work it returns empty work.
    pub(super) fn next_work(
        &self,
        linger: Duration,
        pause: Option<Duration>,
        idle: Duration,
    ) -> Option<Work> {
        let mut core = self.lock();
        if let Some(pause) = pause {
            let is_idle = |core: &mut Core| core.stage() < Stage::Stopping;
            let waited = self.work.wait_timeout_while(core, pause, is_idle);
            core = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        loop {
            if core.stage() == Stage::Ended {
                return None;
            }
            match core.wants() {
                Wants::Now => return Some(core.take_work()),
                Wants::Soon => {
                    let is_idle = |core: &mut Core| core.wants() == Wants::Soon;
                    let waited = self.work.wait_timeout_while(core, linger, is_idle);
                    core = waited.unwrap_or_else(PoisonError::into_inner).0;
                    return Some(core.take_work());
                }
                Wants::Nothing => {
                    let is_idle = |core: &mut Core| {
                        core.wants() == Wants::Nothing && core.stage() < Stage::Ended
                    };
                    let waited = self.work.wait_timeout_while(core, idle, is_idle);
                    let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    core = guard;
                    if timeout.timed_out() {
                        return Some(Work::default());
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // The core has no invariant that a panic could leave broken halfway and that its tests do
        // not check; a poisoned spool could not give back its messages.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
