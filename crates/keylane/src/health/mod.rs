//! Whether a dispatcher and its sources can work, and what to do if not. A leaf: pure decisions
//! over what is observed.

mod limits;
pub use limits::HealthLimits;

mod reason;
pub use reason::HealthReason;

mod verdict;
pub use verdict::Health;
pub(crate) use verdict::{DispatcherView, IntakeView};
