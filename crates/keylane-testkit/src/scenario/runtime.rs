//! Runtimes for tests.

use tokio::runtime::{Builder, Runtime};

/// Returns a runtime with one thread and paused time. Its clock moves when all tasks wait for it.
///
/// # Panics
///
/// Panics if it cannot be built.
pub fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    let built = builder.enable_time().start_paused(true).build();
    built.expect("a runtime")
}

/// Returns a runtime with two threads and real time.
///
/// # Panics
///
/// Panics if it cannot be built.
pub fn threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let built = builder.worker_threads(2).enable_time().build();
    built.expect("a runtime")
}

/// Runs a test on both runtimes, one after the other.
pub fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    paused().block_on(test());
    threads().block_on(test());
}
