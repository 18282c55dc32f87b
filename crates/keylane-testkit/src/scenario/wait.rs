//! Waiting with a limit.

use std::future::poll_fn;
use std::panic::Location;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

/// The longest wait. No machine needs as much.
const PATIENCE: Duration = Duration::from_secs(120);

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

/// Yields to the other tasks until `is_true` returns true. The clock does not move, and this also
/// works on several threads. See [`until`] for what needs the clock.
///
/// # Panics
///
/// Panics if `is_true` does not return true within two minutes, which are not of Tokio's clock: it
/// may be paused.
#[track_caller]
pub fn settle_until(mut is_true: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let (caller, began) = (Location::caller(), std::time::Instant::now());
    async move {
        while !is_true() {
            let is_late = began.elapsed() > PATIENCE;
            assert!(!is_late, "after {PATIENCE:?} this is still false: {caller}");
            tokio::task::yield_now().await;
        }
    }
}

/// Waits until `is_true` returns true, for two minutes at most. Looks once a millisecond. With
/// paused time the clock moves by one millisecond each time that all other tasks wait.
///
/// ```
/// use keylane_testkit::scenario::{SECOND, paused, until};
///
/// paused().block_on(async {
///     let task = tokio::spawn(tokio::time::sleep(SECOND));
///     until(|| task.is_finished()).await;
/// });
/// ```
///
/// # Panics
///
/// Panics if `is_true` does not return true by then. The message names the line that waited.
#[track_caller]
pub fn until(is_true: impl FnMut() -> bool) -> impl Future<Output = ()> {
    until_within(PATIENCE, is_true)
}

/// Waits like [`until`], for this long at most.
///
/// ```
/// use keylane_testkit::scenario::{SECOND, paused, until_within};
///
/// paused().block_on(async {
///     let task = tokio::spawn(tokio::time::sleep(SECOND));
///     until_within(2 * SECOND, || task.is_finished()).await;
/// });
/// ```
///
/// # Panics
///
/// Panics if `is_true` does not return true by then. The message names the line that waited.
#[track_caller]
pub fn until_within(
    limit: Duration,
    mut is_true: impl FnMut() -> bool,
) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + limit;
        while !is_true() {
            let is_late = Instant::now() >= deadline;
            assert!(!is_late, "after {limit:?} this is still false: {caller}");
            tokio::time::sleep(MS).await;
        }
    }
}

/// Waits until `is_true` returns true, for two minutes at most. For questions to a server: there
/// are five milliseconds between one answer and the next question.
///
/// ```
/// use keylane_testkit::scenario::{paused, until_async};
///
/// # async fn ask_server() -> usize { 0 }
/// paused().block_on(async {
///     until_async("nothing is left", async || ask_server().await == 0).await;
/// });
/// ```
///
/// # Panics
///
/// Panics if `is_true` does not return true by then, and says that it was not so that `what`. An
/// answer that does not come is also waited for no longer.
#[track_caller]
pub fn until_async(what: &str, mut is_true: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let caller = Location::caller();
    let waits = async move {
        while !is_true().await {
            tokio::time::sleep(5 * MS).await;
        }
    };
    async move {
        let ended = tokio::time::timeout(PATIENCE, waits).await;
        assert!(
            ended.is_ok(),
            "after {PATIENCE:?} it is not so that {what}: {caller}"
        );
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
