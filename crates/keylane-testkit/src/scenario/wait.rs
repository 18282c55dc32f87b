//! Waiting, and the end of waiting.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// A millisecond.
pub const MS: Duration = Duration::from_millis(1);

/// A second.
pub const SECOND: Duration = Duration::from_secs(1);

/// Waits for `work`, but not for ever: work that never ends is a failure, and not a test that
/// hangs. Two minutes are far more than any machine needs; with paused time they are over at once.
///
/// # Panics
///
/// If `work` has not ended by then.
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(Duration::from_secs(120), work).await;
    ended.expect("it ends within two minutes")
}

/// With paused time: waits until no task can do anything more without the clock, which is a
/// millisecond on then.
pub async fn quiet() {
    tokio::time::sleep(MS).await;
}

/// Waits until `is_true`, without the clock, so on several threads too.
///
/// # Panics
///
/// If it does not become true: see [`within`].
pub async fn until(mut is_true: impl FnMut() -> bool) {
    within(async {
        while !is_true() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Polls a future so many times, with everything that `between` does after each of them, and then
/// drops it. `Some`: it has answered before.
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
