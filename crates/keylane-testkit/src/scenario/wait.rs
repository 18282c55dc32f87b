//! Waiting with a limit.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// The longest wait. No machine needs as much.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// A millisecond.
pub const MS: Duration = Duration::from_millis(1);

/// A second.
pub const SECOND: Duration = Duration::from_secs(1);

/// Waits for `work`, for two minutes at most. Work that does not end fails the test instead of
/// hanging it. With paused time the two minutes pass at once.
///
/// # Panics
///
/// Panics if `work` has not ended by then.
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(PATIENCE, work).await;
    ended.expect("it ends within two minutes")
}

/// Waits like [`within`], with a limit of twenty years. For paused time, if the work itself may
/// wait for years: a limit of two minutes would end first.
///
/// # Panics
///
/// Panics if `work` has not ended by then.
pub async fn within_years<T>(work: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(20 * 365 * 24 * 3_600 * SECOND, work).await;
    ended.expect("it ends within twenty years")
}

/// With paused time: waits until no task can go on without the clock. The clock is then a
/// millisecond later. [`settle`] waits without the clock.
pub async fn quiet() {
    tokio::time::sleep(MS).await;
}

/// Yields to the other tasks 200 times, so that each goes as far as it can without the clock. For
/// runtimes with one thread. The clock does not move.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Polls a future up to `polls` times, runs `between` after each poll, and then drops the future.
/// Returns `Some` if the future was ready before.
pub async fn drop_after_polls<F: Future>(
    polls: usize,
    future: F,
    mut between: impl AsyncFnMut(usize),
) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for poll in 0..polls {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(answer) = polled {
            return Some(answer);
        }
        between(poll).await;
    }
    None
}
