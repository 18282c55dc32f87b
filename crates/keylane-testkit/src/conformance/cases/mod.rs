//! The cases, by subject.

mod contract;
pub(super) use contract::{dropped_receive, idle, nack, refusals, stale_ack};

mod features;
pub(super) use features::{attempts, end, lease, random_access};

mod flow;
pub(super) use flow::{hot_key, order, payloads, room, slow_key};

mod failures;
pub(super) use failures::{dead_letter, dead_letter_at_source, retry, undecodable};

mod round_trip;
pub(super) use round_trip::round_trip;

mod endings;
pub(super) use endings::{acked, handed_back, process_killed, stop};

mod revokes;
pub(super) use revokes::{
    late_ack, lost, revoke_backing_off, revoke_halted, revoke_in_flight, revoke_parked,
};

mod faults;
pub(super) use faults::{ack_lost, kill, restart, stall, storm};

use super::broken::Broken;
use super::stage::Stage;

/// What a case returns.
type Result = std::result::Result<(), Broken>;
