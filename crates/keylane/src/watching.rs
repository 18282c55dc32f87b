//! What a running dispatcher shows: counters, events, hot keys, the state of one lane.
//!
//! | call | answers |
//! | --- | --- |
//! | [`stats`](crate::Dispatcher::stats) | how many, and how much room is left: [`Stats`] |
//! | [`health`](crate::Dispatcher::health) | whether it works, and what to do if not: [`Health`] |
//! | [`events`](crate::Dispatcher::events) | what happens from now on: [`Events`] of [`Event`] |
//! | [`hottest`](crate::Dispatcher::hottest) | the busiest keys: [`HotKey`], ranked by [`HotBy`] |
//! | [`inspect`](crate::Dispatcher::inspect) | why one key waits: [`LaneView`], [`LaneState`] |

pub use crate::engine::{Event, Events, SourceEvent};
pub use crate::health::{Health, HealthLimits, HealthReason};
pub use crate::lane::{LaneState, LaneView};
pub use crate::observe::{HotBy, HotKey, Stats};

/// Returns the metrics that this crate publishes with the feature `metrics`: those of a dispatcher,
/// and those of a source that is consumed.
pub fn published_metrics() -> Vec<keylane_metrics::Metric> {
    let mut all = crate::observe::facade::published();
    all.extend(crate::consume::published());
    all
}
