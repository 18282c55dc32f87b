//! What users hold: the builder, the handle, receipts, permits, lanes, shutdowns.

mod handle;
pub use handle::Dispatcher;

mod builder;
pub use builder::Builder;
#[cfg(all(test, keylane_shuttle))]
pub(crate) use builder::STRIPED;

mod address;
mod admission;

mod send;

mod sink;
pub use sink::DispatcherSink;

mod when;
pub use when::When;

mod receipt;
pub use receipt::Receipt;

mod permit;
pub use permit::Permit;

mod lane_control;
pub use lane_control::LaneControl;

mod watching;

mod shutdown;
pub use shutdown::Shutdown;
