//! Waiting until something is true.

use std::panic::Location;
use std::time::Duration;

use tokio::time::Instant;

use super::wait::{MS, PATIENCE};

/// Yields to the other tasks until `is_true` returns true. The clock does not move, and this also
/// works on several threads. See [`until`] for what needs the clock.
///
/// ```
/// use keylane_testkit::scenario::{paused, settle_until};
///
/// paused().block_on(async {
///     let task = tokio::spawn(tokio::task::yield_now());
///     settle_until(|| task.is_finished()).await;
/// });
/// ```
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
