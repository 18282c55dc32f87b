//! The task that publishes.

use std::future::Future;
use std::time::Duration;

/// How often the statistics of a thing are published.
pub const EVERY: Duration = Duration::from_secs(5);

/// Awaits `show` at once and then every [`EVERY`], in a task of the current runtime, until it
/// returns false.
///
/// Without the feature `metrics` this does nothing.
///
/// # Panics
///
/// Panics outside a Tokio runtime, or in one without timers.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut times = 0;
/// keylane_metrics::repeat(move || {
///     times += 1;
///     std::future::ready(times < 3)
/// });
/// # }
/// ```
#[cfg(feature = "metrics")]
pub fn repeat<F: Future<Output = bool> + Send>(mut show: impl FnMut() -> F + Send + 'static) {
    tokio::spawn(async move {
        while show().await {
            tokio::time::sleep(EVERY).await;
        }
    });
}

/// Awaits `show` at once and then every [`EVERY`], in a task of the current runtime, until it
/// returns false.
///
/// Without the feature `metrics` this does nothing.
#[cfg(not(feature = "metrics"))]
pub fn repeat<F: Future<Output = bool> + Send>(_: impl FnMut() -> F + Send + 'static) {}
