//! The number of lanes changes while messages come in.

mod layout;
pub(crate) use layout::{Layout, MOST_LANES, Places, Placing};

mod reshard;
pub(super) use reshard::Placed;
pub(crate) use reshard::Resharding;
