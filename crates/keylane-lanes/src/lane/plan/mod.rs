//! Plans: which messages of a lane may start, and in which order. Each owns what it needs to know.

mod batch;

mod coalesce;

mod sequence;

mod sequencer;
pub(super) use sequencer::Came;
pub use sequencer::Sequencer;

mod kept;
pub(crate) use kept::Plan;
