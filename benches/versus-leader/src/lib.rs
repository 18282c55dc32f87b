//! Measures keylane-leader on ZooKeeper beside the leader election of Apache Curator.
//!
//! Both use one server that is started for the run, and the same session time-out. Each candidate
//! is in a process of its own.

pub mod changes;
pub mod curator;
pub mod load;
#[path = "../../versus/src/number.rs"]
pub mod number;
pub mod process;
pub mod samples;
pub mod server;
pub mod side;
pub mod worker;

#[path = "../../versus-sql/src/grid.rs"]
#[expect(dead_code, reason = "tables of words are for the other comparisons")]
mod grid;
pub use grid::Table;

mod tables;
pub use tables::{Results, tables};

/// What goes wrong in a measurement.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The session time-out of all candidates.
pub const SESSION: std::time::Duration = std::time::Duration::from_secs(2);
