//! Jobs in other threads, with the errors of a source.

use keylane_source::SourceError;

use crate::link::{self, Job};

pub(super) fn job<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<Job<T>, SourceError> {
    link::job(run).map_err(SourceError::failed)
}

pub(super) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SourceError> {
    link::blocking(run).await.map_err(SourceError::failed)
}

/// Waits for a job in another thread, and removes it.
pub(super) async fn finished<T>(job: &mut Option<Job<T>>) -> Result<T, SourceError> {
    let Some(handle) = job else {
        return std::future::pending().await;
    };
    let done = handle.await;
    *job = None;
    done.map_err(SourceError::failed)
}
