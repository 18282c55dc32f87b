//! What several metrics have in common.

use crate::metric::Metric;

/// The names of the labels that several metrics have: makes those metrics.
///
/// # Examples
///
/// ```
/// use keylane_metrics::{LabelNames, Metric};
///
/// const INBOX: LabelNames = LabelNames::new(&["inbox"]);
/// const WAITING: Metric = INBOX.gauge("keylane_inbox_waiting", "Messages that wait.");
/// assert_eq!(WAITING.label_names(), ["inbox"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelNames(&'static [&'static str]);

impl LabelNames {
    /// Takes the names of the labels that the metrics may have.
    pub const fn new(names: &'static [&'static str]) -> Self {
        Self(names)
    }

    /// Creates a counter with these labels, see [`Metric::counter`].
    pub const fn counter(self, name: &'static str, help: &'static str) -> Metric {
        Metric::counter(name, help).labels(self.0)
    }

    /// Creates a gauge with these labels, see [`Metric::gauge`].
    pub const fn gauge(self, name: &'static str, help: &'static str) -> Metric {
        Metric::gauge(name, help).labels(self.0)
    }

    /// Creates a histogram with these labels, see [`Metric::histogram`].
    pub const fn histogram(self, name: &'static str, help: &'static str) -> Metric {
        Metric::histogram(name, help).labels(self.0)
    }
}
