//! The lanes of a dispatcher, and what is seen together with a decision of one of them.

mod step;
pub(crate) use step::AfterUnlock;

mod memory;

mod gates;

mod evict;

mod inspect;

mod messages;
pub(crate) use messages::Listed;

mod stopped;

mod hottest;

mod waits;
pub(crate) use waits::{Wait, Waits};

mod watermark;

use keylane_lanes::Rules;
use keylane_rt::atomic::AtomicUsize;
use keylane_rt::{Arc, Mutex, OwnLine};

use super::clocks::Clocks;
use super::end::ShutdownState;
use super::lane::Lanes;
use super::leases::LaneLeaseTable;
use super::probe::Probe;
use super::reshard::Places;
use super::room::Room;
use super::settings::Settings;
use super::settlement::Settlement;
use super::slow_path::SlowPath;
use crate::rate::RateMemory;
use crate::types::Types;

/// The lanes, the rules that they decide by, and what keys without a lane remember.
pub(crate) struct LaneTable<T: Types> {
    pub(super) lanes: Lanes<T>,
    /// The rules that the lanes decide by.
    pub(super) rules: Rules,
    /// Whether the lanes have a discipline.
    pub(super) has_discipline: bool,
    /// Whether the first message of a lane with a discipline goes into the ready queue itself.
    pub(super) enters: bool,
    /// The rates of keys that have no lane. `None`: keys have no rate.
    pub(super) rates: Option<RateMemory>,
    /// How many lanes wait for an operator's decision. A statistic.
    pub(super) halted: AtomicUsize,
    /// How many lanes wait for what.
    pub(super) waits: Waits,
    /// The keys of lanes that have drained up to their watermarks. Lanes add to it, the router
    /// takes from it.
    pub(super) drained: Mutex<Vec<T::Key>>,
    /// How many lanes the keys are spread over, if they are. Only a reshard changes it.
    pub(crate) places: Option<Arc<Places<T::Key>>>,
    /// Which keys have their leases. `None`: lanes need none.
    pub(super) leases: Option<Arc<LaneLeaseTable<T::Key>>>,
    pub(super) settings: Arc<Settings<T::Key, T::Message, T::Error>>,
    pub(super) slow_path: Arc<OwnLine<SlowPath>>,
    pub(super) clocks: Arc<Clocks<T>>,
    pub(super) room: Arc<Room>,
    pub(super) probe: Arc<Probe<T::Key>>,
    pub(super) shutdown: Arc<ShutdownState<T::Key, T::Message>>,
    pub(super) settlement: Arc<Settlement<T>>,
}
