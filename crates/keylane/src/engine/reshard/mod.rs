//! The number of lanes changes while messages come in.

mod layout;
pub(crate) use layout::{Layout, MOST_LANES, Places, Placing};

mod change;
pub(super) use change::Placed;
pub(crate) use change::Resharding;
