//! Which job starts: the last checks before a handler is called.

mod choose;

mod admit;

mod leased;

use keylane_rt::{Arc, OwnLine};

use super::decisions::Decisions;
use super::failures::Failures;
use super::slow_path::SlowPath;
use super::sources::Sources;
use super::table::LaneTable;
use crate::handler::Details;
use crate::types::Types;

/// Decides which job of a lane starts.
pub(crate) struct Starts<T: Types> {
    pub(super) table: Arc<LaneTable<T>>,
    pub(super) decisions: Arc<Decisions<T>>,
    pub(super) failures: Arc<Failures<T>>,
    pub(super) slow_path: Arc<OwnLine<SlowPath>>,
    pub(super) sources: Arc<Sources>,
    /// The details of a context that all handlers share.
    pub(super) details: Arc<Details>,
}
