//! Measures keylane-kafka beside other ways to consume a topic.
//!
//! All of them read the same topics of one broker that is started for the run, each in a process of
//! its own.

pub mod broker;
pub mod contenders;
#[path = "../../versus/src/glob.rs"]
pub mod glob;
pub mod handler;
#[path = "../../versus/src/number.rs"]
pub mod number;
pub mod pause;
pub mod process;
pub mod record;
pub mod report;
pub mod task;
pub mod usage;
pub mod work;
pub mod workload;

pub mod bars;
pub mod results;

#[path = "../../versus-sql/src/grid.rs"]
mod grid;
pub use grid::Table;

mod tables;
pub use tables::tables;

/// What goes wrong in a measurement.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
