//! Runtimes for tests.

use std::ops::Deref;
use std::pin::Pin;

use tokio::runtime::{Builder, Runtime};

/// A runtime of Tokio that compiles faster under many tests.
///
/// It dereferences to [`Runtime`]. Its own [`block_on`](Self::block_on) boxes the future, so that
/// the loop that polls it is compiled once, and not for each test.
#[derive(Debug)]
pub struct TestRuntime(Runtime);

impl TestRuntime {
    /// Runs a future to its end. See [`Runtime::block_on`].
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let future: Pin<Box<dyn Future<Output = F::Output> + '_>> = Box::pin(future);
        self.0.block_on(future)
    }

    /// Shuts the runtime down, and does not wait for its tasks. See
    /// [`Runtime::shutdown_background`].
    pub fn shutdown_background(self) {
        self.0.shutdown_background();
    }
}

impl Deref for TestRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.0
    }
}

/// Returns a runtime with one thread and paused time. Its clock moves when all tasks wait for it.
///
/// # Panics
///
/// Panics if it cannot be built.
pub fn paused() -> TestRuntime {
    let mut builder = Builder::new_current_thread();
    let built = builder.enable_time().start_paused(true).build();
    TestRuntime(built.expect("a runtime"))
}

/// Returns a runtime with two threads and real time.
///
/// # Panics
///
/// Panics if it cannot be built.
pub fn threads() -> TestRuntime {
    let mut builder = Builder::new_multi_thread();
    let built = builder.worker_threads(2).enable_time().build();
    TestRuntime(built.expect("a runtime"))
}

/// Runs a test on both runtimes, one after the other.
pub fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    paused().block_on(test());
    threads().block_on(test());
}
