//! What the tests of the engine share beside `keylane_testkit::scenario`.

mod handler;
mod life;

pub(crate) use handler::{boxed, boxed_in_lanes};
pub(crate) use life::{End, Life};
