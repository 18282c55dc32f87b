//! An operator's view of one lane. A leaf: the engine fills it in, and the handle returns it.

mod view;
pub use view::{FailedAttempt, HoldingBack, LaneState, LaneView, MessageOrigin, MessageView};
