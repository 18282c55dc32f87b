//! The state that can be seen from outside. A leaf: it decides nothing,
//! and knows nothing of the engine.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `stats` | the counters of a dispatcher, and a snapshot of them |
//! | `facade` | the same through the `metrics` facade |
//! | `trace` | spans, and how keys look in them |
//! | `hot_key` | what a query for hot keys returns |
//! | `hot_keys` | the tables of candidates behind that query |
//! | `times` | how long messages wait and attempts last |
//! | `failed` | the attempts that failed last |
//! | `stuck` | finds polls that block their thread |
//! | `watchdog` | whether the task that looks for them runs |

mod stats;
pub(crate) use stats::Counters;
pub use stats::Stats;

pub(crate) mod facade;
pub(crate) mod trace;

mod hot_key;
pub use hot_key::{HotBy, HotKey};

pub(crate) mod hot_keys;

mod times;
pub(crate) use times::Timekeeper;
pub use times::{Measuring, Spread, Times};

mod failed;
pub(crate) use failed::FailedAttempts;

mod stuck;
pub(crate) use stuck::{PollMark, StuckPolls};

mod watchdog;
pub(crate) use watchdog::Watchdog;
