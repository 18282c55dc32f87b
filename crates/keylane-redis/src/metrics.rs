//! The metrics of this crate.

use keylane_metrics::Metric;

use crate::list::published_of_lists;
use crate::rate::published_of_rates;
use crate::stream::published_of_streams;

/// Returns the metrics that this crate publishes with the feature `metrics`: those of a
/// [`SharedRate`](crate::SharedRate), and what waits in the server for its sources. Sources publish
/// what the dispatcher knows of them as well, and leases and elections what their own crates know.
pub fn published_metrics() -> Vec<Metric> {
    let lists = published_of_lists().into_iter();
    let sources = lists.chain(published_of_streams());
    sources.chain(published_of_rates()).collect()
}
