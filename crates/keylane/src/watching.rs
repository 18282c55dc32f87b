//! What a running dispatcher shows: counters, events, hot keys, the state of one lane.
//!
//! | call | answers |
//! | --- | --- |
//! | [`stats`](crate::Dispatcher::stats) | how many, and how much room is left: [`Stats`] |
//! | [`events`](crate::Dispatcher::events) | what happens from now on: [`Events`] of [`Event`] |
//! | [`hottest`](crate::Dispatcher::hottest) | the busiest keys: [`HotKey`], ranked by [`HotBy`] |
//! | [`paused`](crate::Dispatcher::paused) | the keys that an operator has paused |
//! | [`measure`](crate::Dispatcher::measure) | how long messages wait and attempts last: [`Times`] |
//! | [`inspect`](crate::Dispatcher::inspect) | why one key waits: [`LaneView`], [`LaneState`] |
//! | [`messages`](crate::LaneControl::messages) | the messages of one key: [`MessageView`] |
//! | [`failed`](crate::LaneControl::failed) | its last failed attempts: [`FailedAttempt`] |

pub use crate::engine::{Event, Events, SourceEvent};
pub use crate::lane::{FailedAttempt, LaneState, LaneView, MessageOrigin, MessageView};
pub use crate::observe::{HotBy, HotKey, Measuring, Spread, Stats, Times};
