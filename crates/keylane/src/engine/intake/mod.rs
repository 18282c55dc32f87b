//! Messages come in: the router takes them from the channel and brings each to the lane of its key.

mod router;
pub(crate) use router::Router;

mod place;

mod offer;

mod later;
pub(super) use later::{Later, Returning};

mod release;

mod store;
pub(crate) use store::{StoreRequest, load};
