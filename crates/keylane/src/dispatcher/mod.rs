//! What users hold: the builder, the handle, receipts, permits, lanes, and the way to the end.

mod builder;
pub use builder::Builder;

mod handle;
pub use handle::Dispatcher;

mod admission;

mod receipt;
pub use receipt::Receipt;

mod permit;
pub use permit::Permit;

mod watching;

mod lane;
pub use lane::Lane;

mod ending;
pub use ending::Ending;
