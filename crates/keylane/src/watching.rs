//! What a running dispatcher shows: counters, events, hot keys, the state of one lane.
//!
//! | call | answers |
//! | --- | --- |
//! | [`stats`](crate::Dispatcher::stats) | how many, and how much room is left: [`Stats`] |
//! | [`health`](crate::Dispatcher::health) | whether it works, and what to do if not: [`Health`] |
//! | [`events`](crate::Dispatcher::events) | what happens from now on: [`Events`] of [`Event`] |
//! | [`hottest`](crate::Dispatcher::hottest) | the busiest keys: [`HotKey`], ranked by [`HotBy`] |
//! | [`paused`](crate::Dispatcher::paused) | the keys that an operator has paused |
//! | [`holding_back`](crate::Dispatcher::holding_back) | who holds a source back: [`HoldingBack`] |
//! | [`measure`](crate::Dispatcher::measure) | how long messages wait and attempts last: [`Times`] |
//! | [`inspect`](crate::Dispatcher::inspect) | why one key waits: [`LaneView`], [`LaneState`] |
//! | [`messages`](crate::LaneControl::messages) | the messages of one key: [`MessageView`] |
//! | [`failed`](crate::LaneControl::failed) | its last failed attempts: [`FailedAttempt`] |

pub use crate::engine::{Event, Events, SourceEvent};
pub use crate::health::{Health, HealthLimits, HealthReason};
pub use crate::lane::{
    FailedAttempt, HoldingBack, LaneState, LaneView, MessageOrigin, MessageView,
};
pub use crate::observe::{HotBy, HotKey, Measuring, Spread, Stats, Times, WaitingLanes};

/// Returns the metrics that this crate publishes with the feature `metrics`: those of a dispatcher,
/// and those of a source that is consumed.
pub fn published_metrics() -> Vec<keylane_metrics::Metric> {
    let mut all = crate::observe::facade::published();
    all.extend(crate::consume::published());
    all
}
