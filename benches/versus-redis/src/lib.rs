//! Measures keylane-redis beside other ways to consume Redis.
//!
//! All of them run the same handlers, in one process, on one server that is started for the run.

pub mod contenders;
pub mod measure;
pub mod message;
pub mod server;
pub mod usage;
// What the handlers do and see is what they do and see on PostgreSQL.
#[path = "../../versus-sql/src/work.rs"]
pub mod work;
pub mod workload;

pub mod leased;
pub mod leases;

pub mod bars;
#[path = "../../versus/src/glob.rs"]
pub mod glob;
#[path = "../../versus/src/number.rs"]
pub mod number;
pub mod results;

#[path = "../../versus-sql/src/grid.rs"]
mod grid;
pub use grid::Table;

mod tables;
pub use tables::tables;

/// What goes wrong in a measurement.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
