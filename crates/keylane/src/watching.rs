//! What a running dispatcher shows: counters, events, hot keys, the state of one lane.
//!
//! | call | answers |
//! | --- | --- |
//! | [`stats`](crate::Dispatcher::stats) | how many, and how much room is left: [`Stats`] |
//! | [`events`](crate::Dispatcher::events) | what happens from now on: [`Events`] of [`Event`] |
//! | [`hottest`](crate::Dispatcher::hottest) | the busiest keys: [`HotKey`], ranked by [`HotBy`] |
//! | [`inspect`](crate::Dispatcher::inspect) | why one key waits: [`LaneView`], [`LaneState`] |

pub use crate::engine::{Event, Events, SourceEvent};
pub use crate::lane::{LaneState, LaneView};
pub use crate::observe::{HotBy, HotKey, Stats};
