//! How a dispatcher ends: the stages, the report, and what is handed back.

mod shutdown;
pub(super) use shutdown::Shutdown;
pub(crate) use shutdown::Stage;
pub use shutdown::{HandedBack, Report};

mod evict;
