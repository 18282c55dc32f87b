//! Measures keylane-sql beside other queues on PostgreSQL.
//!
//! All queues run the same handlers, in one process, on one server that is started for the run.

pub mod backlog;
pub mod bars;
pub mod contenders;
#[path = "../../versus/src/glob.rs"]
pub mod glob;
pub mod latency;
pub mod measure;
pub mod message;
#[path = "../../versus/src/number.rs"]
pub mod number;
pub mod results;
pub mod work;
pub mod workload;

mod grid;
pub use grid::Table;

mod tables;
pub use tables::{backlogs, bars_table, contenders as names, latencies, rates, violations};

/// What goes wrong in a measurement.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
