//! Distributions of times.

use std::fmt;
use std::time::Duration;

use crate::labels::Labels;
use crate::metric::Metric;

/// A histogram of times.
///
/// Without the feature `metrics` this is empty.
pub struct Timer(IfPublished<Histogram>);

#[cfg(feature = "metrics")]
use metrics::Histogram;

#[cfg(not(feature = "metrics"))]
struct Histogram;

impl Timer {
    /// Looks up the histogram in the recorder of the process, or of the current thread.
    ///
    /// # Panics
    ///
    /// Panics in debug builds if the metric does not name one of its labels.
    pub fn new(metric: &Metric, labels: &Labels) -> Self {
        Self(IfPublished::new(|| look_up(metric, labels)))
    }

    /// Records a time.
    #[inline]
    pub fn record(&self, time: Duration) {
        self.0.with(|histogram| record(histogram, time));
    }
}

#[cfg(feature = "metrics")]
fn look_up(metric: &Metric, labels: &Labels) -> Histogram {
    let key = labels.key(metric, None);
    metrics::with_recorder(|recorder| {
        recorder.describe_histogram(metric.name().into(), None, metric.help().into());
        recorder.register_histogram(&key, &crate::labels::METADATA)
    })
}

#[cfg(feature = "metrics")]
#[inline]
fn record(histogram: &Histogram, time: Duration) {
    histogram.record(time);
}

#[cfg(not(feature = "metrics"))]
fn look_up(_: &Metric, _: &Labels) -> Histogram {
    Histogram
}

#[cfg(not(feature = "metrics"))]
fn record(_: &Histogram, _: Duration) {}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

/// A value that is only there if metrics are published: what is measured for them costs nothing
/// otherwise.
///
/// # Examples
///
/// ```
/// use std::time::Instant;
/// use keylane_metrics::IfPublished;
///
/// let started = IfPublished::new(Instant::now);
/// started.with(|started| println!("it took {:?}", started.elapsed()));
/// ```
#[derive(Debug)]
pub struct IfPublished<T>(
    #[cfg(feature = "metrics")] T,
    #[cfg(not(feature = "metrics"))] std::marker::PhantomData<T>,
);

#[cfg(feature = "metrics")]
impl<T> IfPublished<T> {
    /// Makes the value.
    #[inline]
    pub fn new(value: impl FnOnce() -> T) -> Self {
        Self(value())
    }

    /// Calls this with the value.
    #[inline]
    pub fn with(&self, call: impl FnOnce(&T)) {
        call(&self.0);
    }

    /// Calls this with the value.
    #[inline]
    pub fn with_mut(&mut self, call: impl FnOnce(&mut T)) {
        call(&mut self.0);
    }
}

#[cfg(not(feature = "metrics"))]
impl<T> IfPublished<T> {
    /// Makes the value if metrics are published.
    #[inline]
    pub fn new(_: impl FnOnce() -> T) -> Self {
        Self(std::marker::PhantomData)
    }

    /// Calls this with the value, if metrics are published.
    #[inline]
    pub fn with(&self, _: impl FnOnce(&T)) {}

    /// Calls this with the value, if metrics are published.
    #[inline]
    pub fn with_mut(&mut self, _: impl FnOnce(&mut T)) {}
}
