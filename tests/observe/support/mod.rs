//! What the tests share.

pub(crate) mod recorder;

/// Runs a test on this thread, whose subscriber sees all of it, with paused time.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test);
}
