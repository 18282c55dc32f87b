//! The labels of a thing.

/// The labels of a thing: its name, and the name of what it belongs to. Never a key.
///
/// # Examples
///
/// ```
/// use keylane_metrics::Labels;
///
/// let labels = Labels::new().with("source", "orders");
/// # let _ = labels;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Labels(#[cfg(feature = "metrics")] Vec<(&'static str, String)>);

impl Labels {
    /// Returns no labels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a label.
    #[must_use]
    pub fn with(self, name: &'static str, value: &str) -> Self {
        self.with_some(name, Some(value))
    }

    /// Adds a label if there is a value.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn with_some(mut self, name: &'static str, value: Option<&str>) -> Self {
        self.0.extend(value.map(|value| (name, value.to_owned())));
        self
    }

    /// Adds a label if there is a value.
    #[cfg(not(feature = "metrics"))]
    #[must_use]
    pub fn with_some(self, _: &'static str, _: Option<&str>) -> Self {
        self
    }

    /// Returns how a recorder names a metric with these labels, and one more.
    #[cfg(feature = "metrics")]
    pub(crate) fn key(
        &self,
        metric: &crate::metric::Metric,
        more: Option<(&'static str, &'static str)>,
    ) -> metrics::Key {
        let own = self.0.iter().map(|(name, value)| (*name, value.as_str()));
        let all = own.chain(more).map(|(name, value)| {
            // The dashboard, the alerts and the list of metrics rely on it.
            debug_assert!(metric.label_names().contains(&name), "{metric:?}: {name}");
            metrics::Label::new(name, value.to_owned())
        });
        metrics::Key::from_parts(metric.name(), all.collect::<Vec<_>>())
    }
}

/// What a recorder may filter by.
#[cfg(feature = "metrics")]
pub(crate) static METADATA: metrics::Metadata<'static> =
    metrics::Metadata::new("keylane", metrics::Level::INFO, Some(module_path!()));
