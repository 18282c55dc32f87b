//! Static routing: key functions that name one of a fixed number of lanes.
//!
//! A lane number is a key like any other, so nothing else in the crate knows of this module.

mod hash;
pub use hash::hash_lane;

mod random;
pub use random::random_lane;

mod local;
pub use local::local_lane;

mod hash_lanes;
pub use hash_lanes::{HashLane, HashLanes};
