//! Intake: the router takes messages from the channel and places each in the lane of its key.

mod router;
pub(crate) use router::Router;

mod arrivals;

mod stripes;
pub(crate) use stripes::{Stripes, Turned, stripes_for};

mod burst;

mod place;

mod by_plan;

mod detours;

mod release;

mod retries;

mod expire;

mod store;
pub(crate) use store::serve_store;
