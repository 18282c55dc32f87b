//! The end of a dispatcher: the stages, the report, and the messages that are handed back.

mod shutdown;
pub(super) use shutdown::ShutdownState;
pub(crate) use shutdown::Stage;

mod report;
pub use report::{HandedBack, Report};
