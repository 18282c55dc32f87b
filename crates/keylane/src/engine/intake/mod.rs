//! Intake: each message is placed in the lane of its key. The router does that with those of the
//! channel, the runners with those of the stripes.

mod router;
pub(crate) use router::Router;

mod stripes;
pub(crate) use stripes::{Stripes, stripes_for};

mod turns;
pub(crate) use turns::Turned;

mod burst;

mod place;

mod by_plan;

mod detours;

mod release;

mod retries;

mod expire;

mod store;
pub(crate) use store::serve_store;
