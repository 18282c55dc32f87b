//! The name of a metric, and what belongs to it.

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A number that only grows: its name ends in `_total`.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// A distribution of times in seconds: its name ends in `_seconds`.
    Histogram,
}

/// A metric that a crate publishes.
///
/// # Examples
///
/// ```
/// use keylane_metrics::{Kind, Metric};
///
/// const HELD: Metric = Metric::gauge("keylane_source_held", "Messages that have not settled.")
///     .labels(&["dispatcher", "source"]);
/// assert_eq!((HELD.name(), HELD.kind()), ("keylane_source_held", Kind::Gauge));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    labels: &'static [&'static str],
}

impl Metric {
    /// Creates a counter of this name, with a sentence that explains it.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Counter, help)
    }

    /// Creates a gauge of this name, with a sentence that explains it.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Gauge, help)
    }

    /// Creates a histogram of this name, with a sentence that explains it.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Histogram, help)
    }

    const fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self {
            name,
            kind,
            help,
            labels: &[],
        }
    }

    /// Sets the names of the labels that the metric may have.
    #[must_use]
    pub const fn labels(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the kind.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the sentence that explains the metric.
    pub const fn help(&self) -> &'static str {
        self.help
    }

    /// Returns the names of the labels that the metric may have.
    pub const fn label_names(&self) -> &'static [&'static str] {
        self.labels
    }
}
