//! What settles messages: their receipts, their sources, their counts and their room.

mod outcome;
pub(crate) use outcome::Outcome;

mod tally;
pub(crate) use tally::Tally;

mod answer;

mod settle;

mod hand_back;

use keylane_rt::Arc;

use super::end::ShutdownState;
use super::probe::Probe;
use super::room::Room;
use super::settings::Share;
use super::sources::Sources;
use crate::types::Types;

/// Settles messages, and hands back those that have no outcome.
///
/// Knows no lane: what starts next is not its business.
pub(crate) struct Settlement<T: Types> {
    pub(super) room: Arc<Room>,
    pub(super) probe: Arc<Probe<T::Key>>,
    pub(super) shutdown: Arc<ShutdownState<T::Key, T::Message>>,
    pub(super) sources: Arc<Sources>,
    /// How the receipts of merged messages get the answer of the message that ran.
    pub(super) share: Option<Share<T::Output, T::Error>>,
    /// Settlements that a runner may gather before it returns their room.
    pub(super) most: u32,
}
