//! Intake: the router takes messages from the channel and places each in the lane of its key.

mod router;
pub(crate) use router::Router;

mod place;

mod release;

mod retries;

mod expire;

mod store;
pub(crate) use store::serve_store;
