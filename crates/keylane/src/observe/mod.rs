//! The state that can be seen from outside. A leaf: it decides nothing,
//! and knows nothing of the engine.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `stats` | the counters of a dispatcher, and a snapshot of them |
//! | `names` | the metrics of this crate |
//! | `facade` | the counters, published through the `metrics` facade |
//! | `trace` | spans, and how keys look in them |
//! | `message_line` | lines of the log about one message |
//! | `hot_key` | what a query for hot keys returns |
//! | `hot_keys` | the tables of candidates behind that query |
//! | `times` | how long messages wait and attempts last |
//! | `failed` | the attempts that failed last |
//! | `stuck` | finds polls that block their thread |
//! | `progress` | since when nothing settles, and handlers block |
//! | `watchdog` | whether the task that looks for them runs |

mod stats;
pub(crate) use stats::Counters;
pub use stats::{Stats, WaitingLanes};

pub(crate) mod facade;
pub(crate) mod message_line;
pub(crate) mod names;
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
pub(crate) use stuck::{Lateness, PollMark, StuckPoll, StuckPolls, is_polled};

mod progress;
pub(crate) use progress::Progress;

mod watchdog;
pub(crate) use watchdog::Watchdog;
