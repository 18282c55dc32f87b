//! What follows from a failed attempt.

mod verdict;

mod failed;

mod batch;

use keylane_rt::Arc;

use super::decisions::Decisions;
use super::probe::Probe;
use super::settings::Settings;
use super::settlement::Settlement;
use crate::types::Types;

/// Decides what becomes of messages whose attempts have failed: another attempt, a dead letter, a
/// halted lane.
pub(crate) struct Failures<T: Types> {
    pub(super) decisions: Arc<Decisions<T>>,
    pub(super) settlement: Arc<Settlement<T>>,
    pub(super) settings: Arc<Settings<T::Key, T::Message, T::Error>>,
    pub(super) probe: Arc<Probe<T::Key>>,
}
