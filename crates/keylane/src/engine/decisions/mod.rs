//! Carries out what lanes decide, once the lock of the shard is released.

mod apply;

mod merge;

mod left;

mod lost;

mod delay;

mod due;

mod advance;

mod by_plan;

mod regroup;

mod hold;

mod unleased;

mod revoked;

use keylane_rt::{Arc, Mutex, mpsc};

use super::clocks::Clocks;
use super::end::ShutdownState;
use super::message::StoreRequest;
use super::probe::Probe;
use super::reports::Reports;
use super::settings::Settings;
use super::settlement::Settlement;
use super::sources::Sources;
use super::table::LaneTable;
use crate::types::Types;

/// Carries out the decisions of lanes.
///
/// What starts next is returned: it knows neither the ready queue nor the runners.
pub(crate) struct Decisions<T: Types> {
    pub(super) table: Arc<LaneTable<T>>,
    pub(super) settlement: Arc<Settlement<T>>,
    /// The channel to the task that asks the version store.
    pub(super) store_requests: Option<mpsc::UnboundedSender<StoreRequest<T::Key>>>,
    pub(super) settings: Arc<Settings<T::Key, T::Message, T::Error>>,
    pub(super) clocks: Arc<Clocks<T>>,
    pub(super) probe: Arc<Probe<T::Key>>,
    pub(super) shutdown: Arc<ShutdownState<T::Key, T::Message>>,
    pub(super) sources: Arc<Sources>,
    /// When messages that were lost to the limit of their lane were logged.
    pub(super) lost_to_limits: Mutex<Reports>,
    /// When messages that expired were logged.
    pub(super) expired: Mutex<Reports>,
}
