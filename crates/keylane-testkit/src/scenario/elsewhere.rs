//! Places outside the runtime under test.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Runtime};

use super::wait::SECOND;

/// A place from which a test calls a function, outside the runtime that the function uses.
///
/// It keeps the runtimes in which it has called a function, and no longer drives them: a task, a
/// timer or a waker that depends on them never goes on.
///
/// ```
/// use keylane_testkit::scenario::Elsewhere;
/// use tokio::runtime::Handle;
///
/// let in_a_runtime = Elsewhere::all().map(|place| place.call(|| Handle::try_current().is_ok()));
/// assert_eq!(in_a_runtime, [false, true, true, true, true]);
/// ```
pub struct Elsewhere {
    place: Place,
    idle: Mutex<Vec<Runtime>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Thread,
    IdleRuntime,
    DroppedRuntime,
    TimerlessRuntime,
    PausedRuntime,
}

impl Elsewhere {
    /// Returns each place, in this order: a thread without a runtime; a runtime that is not driven
    /// after the call; a runtime that is dropped after the call; a runtime without timers; a
    /// runtime with paused time, thirty days ahead.
    pub fn all() -> [Self; 5] {
        [
            Place::Thread,
            Place::IdleRuntime,
            Place::DroppedRuntime,
            Place::TimerlessRuntime,
            Place::PausedRuntime,
        ]
        .map(Self::new)
    }

    /// Returns a thread without a runtime.
    pub fn thread() -> Self {
        Self::new(Place::Thread)
    }

    fn new(place: Place) -> Self {
        Self {
            place,
            idle: Mutex::default(),
        }
    }

    /// Calls a function there, on a thread of its own. The caller's thread waits.
    ///
    /// # Panics
    ///
    /// Panics if the function does.
    pub fn call<R: Send>(&self, function: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| {
            let called = scope.spawn(|| self.call_here(function)).join();
            called.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn call_here<R>(&self, function: impl FnOnce() -> R) -> R {
        let mut builder = Builder::new_current_thread();
        let built = match self.place {
            Place::Thread => return function(),
            Place::IdleRuntime | Place::DroppedRuntime => builder.enable_time().build(),
            Place::TimerlessRuntime => builder.build(),
            Place::PausedRuntime => builder.enable_time().start_paused(true).build(),
        };
        let runtime = built.expect("a runtime");
        let answer = runtime.block_on(async {
            if self.place == Place::PausedRuntime {
                tokio::time::advance(30 * 24 * 3_600 * SECOND).await;
            }
            function()
        });
        if self.place != Place::DroppedRuntime {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(runtime);
        }
        answer
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let idle = self.idle.get_mut().unwrap_or_else(PoisonError::into_inner);
        for runtime in idle.drain(..) {
            // A test drops it inside another runtime, where a runtime may not wait for its tasks.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.place, f)
    }
}
