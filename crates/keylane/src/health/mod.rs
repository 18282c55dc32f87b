//! Whether a dispatcher and its sources can work, and what to do if not. A leaf: pure decisions
//! over what is observed.
//!
//! **What ends the readiness?** Whatever keeps messages from being taken or handled for longer than
//! a limit, and an end. Not a pause, nor a halted lane: an operator knows, and other keys go on.
//!
//! **What ends the liveness?** What only a restart mends: a panic outside the handlers, and a
//! handler that has blocked its thread for minutes. If a server that is away ended it, a fleet
//! would start again and again while that server recovers.
//!
//! **Who remembers since when?** The intake, for a source (`consume/driver/core/failures.rs`). For
//! a dispatcher `observe/progress.rs`, where the watchdog and each question look.

mod limits;
pub use limits::HealthLimits;

mod reason;
pub use reason::HealthReason;

mod verdict;
pub use verdict::Health;
pub(crate) use verdict::{DispatcherView, IntakeView};
