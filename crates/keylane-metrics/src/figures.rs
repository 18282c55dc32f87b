//! What is published of one thing.

#[cfg(feature = "metrics")]
mod imp {
    use std::sync::{Mutex, PoisonError};

    use metrics::{Counter, Gauge, KeyName};

    use crate::labels::{Labels, METADATA};
    use crate::metric::Kind;
    use crate::row::Row;

    /// The handles of one thing, and what it has added to each.
    pub(super) struct Imp<S: 'static> {
        lines: Mutex<Vec<Line<S>>>,
        is_published: bool,
    }

    struct Line<S: 'static> {
        value: fn(&S) -> u64,
        handle: Handle,
        shown: u64,
    }

    enum Handle {
        Counter(Counter),
        Gauge(Gauge),
        /// Others set it, too.
        Shared(Gauge),
    }

    impl<S> Imp<S> {
        pub(super) fn new(rows: &[Row<S>], labels: &Labels) -> Self {
            let line = |row: &Row<S>| Line {
                value: row.value,
                handle: handle(row, labels),
                shown: 0,
            };
            Self {
                lines: Mutex::new(rows.iter().map(line).collect()),
                // Where none is installed, the facade has one that does nothing, and so has no
                // fields.
                is_published: metrics::with_recorder(|recorder| size_of_val(recorder) > 0),
            }
        }

        pub(super) fn is_published(&self) -> bool {
            self.is_published
        }

        pub(super) fn show(&self, stats: impl FnOnce() -> S) {
            // Held while the statistics are taken, so that none are replaced by older ones.
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let stats = stats();
            for line in lines.iter_mut() {
                line.show((line.value)(&stats));
            }
        }
    }

    impl<S> Line<S> {
        fn show(&mut self, value: u64) {
            match &self.handle {
                Handle::Counter(counter) => {
                    counter.increment(value.saturating_sub(self.shown));
                    self.shown = self.shown.max(value);
                }
                Handle::Gauge(gauge) => {
                    gauge.increment(value as f64 - self.shown as f64);
                    self.shown = value;
                }
                Handle::Shared(gauge) => gauge.set(value as f64),
            }
        }
    }

    impl<S> Drop for Line<S> {
        fn drop(&mut self) {
            match &self.handle {
                Handle::Counter(_) => {}
                Handle::Gauge(gauge) => gauge.decrement(self.shown as f64),
                Handle::Shared(gauge) => gauge.set(0.0),
            }
        }
    }

    /// Looks up the handle of a metric that is no histogram.
    fn handle<S>(row: &Row<S>, labels: &Labels) -> Handle {
        let metric = &row.metric;
        let key = labels.key(metric, row.label);
        let (name, help) = (KeyName::from(metric.name()), metric.help().into());
        metrics::with_recorder(|recorder| match metric.kind() {
            Kind::Counter => {
                recorder.describe_counter(name, None, help);
                Handle::Counter(recorder.register_counter(&key, &METADATA))
            }
            Kind::Gauge | Kind::Histogram => {
                recorder.describe_gauge(name, None, help);
                let gauge = recorder.register_gauge(&key, &METADATA);
                match row.is_shared {
                    true => Handle::Shared(gauge),
                    false => Handle::Gauge(gauge),
                }
            }
        })
    }
}

#[cfg(not(feature = "metrics"))]
mod imp {
    use std::marker::PhantomData;

    use crate::labels::Labels;
    use crate::row::Row;

    pub(super) struct Imp<S: 'static>(PhantomData<fn(&S)>);

    impl<S> Imp<S> {
        pub(super) fn new(_: &[Row<S>], _: &Labels) -> Self {
            Self(PhantomData)
        }

        pub(super) fn is_published(&self) -> bool {
            false
        }

        pub(super) fn show(&self, _: impl FnOnce() -> S) {}
    }
}

use std::fmt;

use crate::labels::Labels;
use crate::row::Row;

/// What is published of one thing: the counters and gauges of a table.
///
/// Several things may have the same labels. Their counters and gauges are added up, and a gauge
/// loses the share of a thing when its `Figures` are dropped. A gauge of [`Row::shared`] is set
/// instead.
///
/// Without the feature `metrics` this is empty.
///
/// # Examples
///
/// ```
/// use keylane_metrics::{Figures, Labels, Metric, Row};
///
/// struct Stats {
///     held: usize,
/// }
///
/// const HELD: Metric = Metric::gauge("keylane_source_held", "Messages that have not settled.")
///     .labels(&["source"]);
/// static ROWS: [Row<Stats>; 1] = [Row::new(HELD, |stats| stats.held as u64)];
///
/// let figures = Figures::new(&ROWS, &Labels::new().with("source", "orders"));
/// figures.show(|| Stats { held: 3 });
/// ```
pub struct Figures<S: 'static>(imp::Imp<S>);

impl<S> Figures<S> {
    /// Looks up the handles of a table in the recorder of the process, or of the current thread.
    ///
    /// # Panics
    ///
    /// Panics in debug builds if a metric does not name one of its labels.
    pub fn new(rows: &[Row<S>], labels: &Labels) -> Self {
        Self(imp::Imp::new(rows, labels))
    }

    /// Returns whether there was a recorder when the handles were looked up. What is not published
    /// need not be asked for. A recorder without fields counts as none.
    #[inline]
    pub fn is_published(&self) -> bool {
        self.0.is_published()
    }

    /// Publishes these statistics. They are not taken if nothing is published.
    #[inline]
    pub fn show(&self, stats: impl FnOnce() -> S) {
        self.0.show(stats);
    }
}

impl<S> fmt::Debug for Figures<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}
