//! A table of what is published of a thing.

use std::fmt;

use crate::metric::Metric;

/// One line of a table: a metric, and how its value is found in the statistics `S` of a thing.
pub struct Row<S: 'static> {
    pub(crate) metric: Metric,
    pub(crate) label: Option<(&'static str, &'static str)>,
    #[cfg_attr(
        not(feature = "metrics"),
        expect(dead_code, reason = "it is for what publishes")
    )]
    pub(crate) is_shared: bool,
    #[cfg_attr(
        not(feature = "metrics"),
        expect(dead_code, reason = "it is for what publishes")
    )]
    pub(crate) value: fn(&S) -> u64,
}

impl<S> Row<S> {
    /// Creates a line.
    pub const fn new(metric: Metric, value: fn(&S) -> u64) -> Self {
        Self {
            metric,
            label: None,
            is_shared: false,
            value,
        }
    }

    /// Creates a line for a gauge that several things see alike, such as the length of a list that
    /// each of its workers is told. It is set to what the last one saw, and not added up. When one
    /// of them ends, it falls to zero until another one shows it.
    pub const fn shared(metric: Metric, value: fn(&S) -> u64) -> Self {
        Self {
            is_shared: true,
            ..Self::new(metric, value)
        }
    }

    /// Creates a line with a label, name and value, beside those of the thing.
    pub const fn labelled(
        metric: Metric,
        label: (&'static str, &'static str),
        value: fn(&S) -> u64,
    ) -> Self {
        Self {
            metric,
            label: Some(label),
            is_shared: false,
            value,
        }
    }
}

impl<S> Clone for Row<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Row<S> {}

impl<S> fmt::Debug for Row<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("metric", &self.metric)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

/// Returns the metrics of a table, each once, in their order.
pub fn published<S>(rows: &[Row<S>]) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for row in rows {
        if !metrics.contains(&row.metric) {
            metrics.push(row.metric);
        }
    }
    metrics
}
