//! Consuming a source: the handle of the user, and the task that drives the source.
//!
//! ```text
//!  Intake ── commands ──► Driver ── receive, settle ──► Source
//!     ▲                     │  ▲
//!     └── stats, report ────┘  └── held: which position is behind a slot (pure)
//!                           │
//!                           └──► Inlet: into the lanes, or aside before a full one
//! ```

mod settings;
pub use settings::{Guarantee, IntakeSettings};

mod report;
pub use report::{FailedPart, IntakeReport, IntakeState, IntakeStats};

mod intake;
pub use intake::{Intake, Stop};

mod control;

mod held;

mod parts;

mod aside;

mod inlet;

mod guard;

mod revocation;

mod driver;

mod start;
