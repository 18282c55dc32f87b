//! A burst of messages that are placed one after the other.

use keylane_lanes::Change;
use keylane_rt::Arc;
use keylane_rt::clock::Instant;

use super::super::Engine;
use super::super::message::Queued;
use super::super::settlement::Tally;
use crate::observe::hot_keys::DepthFilter;
use crate::types::Spec;

/// What all messages of a burst share.
pub(super) struct Burst<'a, T: Spec> {
    pub(super) engine: &'a Arc<Engine<T>>,
    /// One timestamp for the burst: reading a clock costs more than visiting a lane.
    pub(super) now: Instant,
    /// The jobs that go into the ready queue.
    pub(super) jobs: &'a mut Vec<Queued<T>>,
    pub(super) grown: &'a mut DepthFilter,
    pub(super) tally: Tally,
}

impl<T: Spec> Burst<'_, T> {
    /// A lane that is full with its first message.
    #[cold]
    pub(super) fn fill_new_lane(&self, hash: u64, key: &T::Key) {
        let engine = self.engine;
        let full = engine.table.lanes.with(hash, key, |lane| {
            let full = lane.count_arrival(1, &engine.table.rules);
            if full {
                engine.room.count_full(hash, Change::Up);
            }
            full
        });
        if full == Some(true) {
            engine.probe.notify_overflowed(key);
        }
    }
}
