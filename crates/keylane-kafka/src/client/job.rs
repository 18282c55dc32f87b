//! Calls of the client that block their thread.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// The answer of something that blocks a thread of its own.
pub(crate) type Job<T> = oneshot::Receiver<T>;

/// Runs something that blocks its thread. Not in one of the runtime's: the end of a runtime waits
/// for those, and a client may wait for its brokers for long.
pub(crate) fn job<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Job<T>> {
    let (answer, job) = oneshot::channel();
    thread::Builder::new()
        .name("keylane-kafka-job".to_owned())
        .spawn(move || {
            // What has asked may be gone.
            let _ = answer.send(run());
        })?;
    Ok(job)
}

/// The same, and waits for the answer.
pub(crate) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    job(run)?.await.map_err(io::Error::other)
}
