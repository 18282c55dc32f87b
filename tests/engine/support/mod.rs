//! What the tests of the engine share beside `keylane_testkit::scenario`.

mod life;

pub(crate) use life::{End, Life};
