//! How a dispatcher ends: the stages, the report, and what is handed back.

mod shutdown;
pub(super) use shutdown::ShutdownState;
pub(crate) use shutdown::Stage;

mod report;
pub use report::{HandedBack, Report};

mod evict;
