//! Calls of the client that block their thread.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// The answer of a call that blocks a thread of its own.
pub(crate) type Job<T> = oneshot::Receiver<T>;

/// Runs a blocking call in a thread of its own. A blocking thread of the runtime will not do: the
/// runtime waits for those when it ends, and a client may wait long for its brokers.
pub(crate) fn job<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Job<T>> {
    let (answer, job) = oneshot::channel();
    thread::Builder::new()
        .name("keylane-kafka-job".to_owned())
        .spawn(move || {
            // The caller may be gone.
            let _ = answer.send(run());
        })?;
    Ok(job)
}

/// Does the same, and waits for the answer.
pub(crate) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    job(run)?.await.map_err(io::Error::other)
}
