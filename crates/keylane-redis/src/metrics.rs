//! The metrics of this crate.

use keylane_metrics::Metric;

use crate::rate::published_of_rates;

/// Returns the metrics that this crate publishes with the feature `metrics`: those of a
/// [`SharedRate`](crate::SharedRate). Sources publish what the dispatcher knows of them, and leases
/// and elections what their own crates know.
pub fn published_metrics() -> Vec<Metric> {
    published_of_rates()
}
