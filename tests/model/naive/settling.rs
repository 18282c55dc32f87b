//! What settles, and what becomes of the lane behind it.

use std::collections::VecDeque;

use super::{Doing, Naive, Settled, Stage, Work};
use crate::events::Id;
use crate::plan::Key;

impl Naive {
    pub(super) fn settle(&mut self, id: Id, settled: Settled) {
        let entry = self.entry(id);
        assert_eq!(entry.settled, None, "{id} settles twice");
        entry.settled = Some(settled);
    }

    /// A head has settled: its lane goes on.
    pub(super) fn advance(&mut self, id: Id) {
        self.heads.remove(&id);
        let Some((key, mut lane)) = self.take_lane(id) else {
            return;
        };
        assert_eq!(lane.pop_front(), Some(id));
        if self.stage >= Stage::Closing {
            lane.into_iter()
                .for_each(|id| self.settle(id, Settled::HandedBack));
            return;
        }
        if lane.iter().all(|id| self.may_be_in_channel(*id)) {
            // The gate went with the lane, and the senders that waited at it are on their way. What
            // is still in the channel finds no lane.
            for sender in self.senders.clone() {
                let entry = self.entry(sender);
                entry.found_room |= entry.message.key == Some(key);
            }
        }
        if let Some(next) = lane.front() {
            self.heads.insert(*next, Doing::Waits(Work::Attempt(1)));
            self.lanes.insert(key, lane);
        } else {
            self.excess.remove(&key);
        }
    }

    fn may_be_in_channel(&self, id: Id) -> bool {
        self.accepted[self.routed..].contains(&id)
    }

    /// A head and all behind it go back.
    pub(super) fn hand_back(&mut self, id: Id) {
        self.hand_back_behind(id);
        self.settle(id, Settled::HandedBack);
        self.advance(id);
    }

    pub(super) fn hand_back_behind(&mut self, id: Id) {
        if let Some((key, mut lane)) = self.take_lane(id) {
            let behind = lane.split_off(1);
            self.lanes.insert(key, lane);
            behind
                .into_iter()
                .for_each(|id| self.settle(id, Settled::HandedBack));
        }
    }

    /// The lane whose head this is; a letter beside its lane has none.
    fn take_lane(&mut self, head: Id) -> Option<(Key, VecDeque<Id>)> {
        let key = self.messages[&head].message.key?;
        if self.lanes.get(&key)?.front() != Some(&head) {
            return None;
        }
        self.lanes.remove_entry(&key)
    }
}
