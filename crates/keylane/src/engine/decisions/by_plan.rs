//! Moves lanes with a discipline on.

use keylane_lanes::Effects;

use super::Decisions;
use crate::engine::message::Queued;
use crate::types::Spec;

impl<T: Spec> Decisions<T> {
    /// Moves on a lane with a discipline.
    // Out of line, to keep the path of plain lanes short.
    #[inline(never)]
    pub(super) fn advance_by_plan(&self, key: T::Key, hash: u64) -> Option<Queued<T>> {
        let now = self.table.now_if(self.table.rules.advances_by_the_time());
        let mut effects = Effects::new();
        let found = self
            .table
            .step(&key, hash, now, &mut effects, |lane, effects| {
                lane.advance(now, &self.table.rules, effects);
            });
        if !found {
            return None;
        }
        self.follow(key, hash, &mut effects)
    }
}
