//! Messages that have come, on their way to their places.

use keylane_rt::Arc;

use super::super::Engine;
use super::super::message::{Accepted, Queued, Returning};
use super::super::reshard::Resharding;
use super::super::settlement::Tally;
use super::place::Placer;
use crate::observe::hot_keys::DepthFilter;
use crate::types::Spec;

/// Hands back the rest of a burst if the key's own `Eq` or `Clone`, which run where a lane is
/// looked for, panic.
///
/// The current message is lost then, and its receipt says so.
pub(super) struct Arrivals<'a, T: Spec> {
    pub(super) engine: &'a Arc<Engine<T>>,
    /// Messages that come back to be placed. They were accepted before the others.
    pub(super) returning: std::vec::Drain<'a, Returning<T>>,
    pub(super) burst: std::vec::Drain<'a, Accepted<T>>,
    /// The `accepted_at` of the last message.
    pub(super) last: &'a mut u64,
}

impl<'a, T: Spec> Arrivals<'a, T> {
    /// Places each message in the lane of its key. What starts goes into `jobs`.
    pub(super) fn place(
        mut self,
        resharding: Option<&'a mut Resharding<T>>,
        jobs: &'a mut Vec<Queued<T>>,
        grown: &'a mut DepthFilter,
    ) {
        let engine = self.engine;
        engine.probe.counters.accepted.add(self.burst.len() as u64);
        engine.probe.hot_keys.begin(grown, self.burst.len());
        let mut placer = Placer::new(engine, resharding, jobs, grown);
        let now = placer.stamp();
        for returning in self.returning.by_ref() {
            *self.last = now.max(*self.last + 1);
            let accepted_at = returning.accepted_at.unwrap_or(*self.last);
            placer.place(returning.accepted, accepted_at);
        }
        for accepted in self.burst.by_ref() {
            *self.last = now.max(*self.last + 1);
            placer.place(accepted, *self.last);
        }
        drop(self);
        placer.finish();
    }
}

impl<T: Spec> Drop for Arrivals<'_, T> {
    fn drop(&mut self) {
        if self.returning.len() + self.burst.len() == 0 {
            return;
        }
        let mut tally = Tally::default();
        let burst = self.burst.by_ref().map(Returning::new);
        for returning in self.returning.by_ref().chain(burst) {
            *self.last += 1;
            let accepted_at = returning.accepted_at.unwrap_or(*self.last);
            self.engine
                .settlement
                .hand_back_accepted(&mut tally, returning.accepted, accepted_at);
        }
        self.engine.settlement.flush(&mut tally);
    }
}
