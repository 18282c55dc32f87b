//! What a running dispatcher shows: counters, events, hot keys, the state of one lane.
//!
//! | call | answers |
//! | --- | --- |
//! | [`Dispatcher::stats`](crate::Dispatcher::stats) | how many, and how much room is left: [`Stats`] |
//! | [`Dispatcher::events`](crate::Dispatcher::events) | what happens from now on: [`Events`] of [`Event`] |
//! | [`Dispatcher::hottest`](crate::Dispatcher::hottest) | which keys have most to do: [`HotKey`], ranked by [`HotBy`] |
//! | [`Dispatcher::inspect`](crate::Dispatcher::inspect) | why one key waits: [`LaneView`] with its [`LaneState`] |

pub use crate::engine::{Event, Events, SourceEvent};
pub use crate::lane::{LaneState, LaneView};
pub use crate::observe::{HotBy, HotKey, Stats};
