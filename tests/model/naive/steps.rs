//! What a step asks, and what it does.

use std::time::Duration;

use tokio::time::Instant;

use super::{Doing, Entry, Naive, Settled, Stage, Timer, Work, timer};
use crate::events::{Id, Message};
use crate::plan::{Decision, End, Key};

impl Naive {
    pub(crate) fn senders(&self) -> impl Iterator<Item = Id> {
        self.senders.iter().copied()
    }

    /// Receipts that are waited for.
    pub(crate) fn receipts(&self) -> impl Iterator<Item = Id> {
        let accepted = self.accepted.iter().copied();
        accepted.filter(|id| self.messages[id].has_receipt && !self.messages[id].resolved)
    }

    /// The head that a decision would be about. `Err`: its time has just come, and it may be out
    /// already.
    pub(crate) fn decidable(&self, key: Key, decision: Decision) -> Result<Option<Id>, ()> {
        let head = self.lanes.get(&key).and_then(|lane| lane.front().copied());
        let Some(head) = head else { return Ok(None) };
        match self.heads[&head] {
            Doing::Halted => Ok(Some(head)),
            Doing::BacksOff { due, .. } if decision != Decision::Resume => {
                match timer(due, Instant::now()) {
                    Timer::Waits => Ok(Some(head)),
                    _ => Err(()),
                }
            }
            _ => Ok(None),
        }
    }

    /// What `try_send` may answer.
    pub(crate) fn expected_of_try(&self, key: Option<Key>) -> &'static [&'static str] {
        let excess = key.and_then(|key| self.excess.get(&key));
        if self.stage > Stage::Open {
            &["closed"]
        } else if self.capacity_left == 0 {
            &["full"]
        } else if !self.holds_back() || !self.is_full(key) {
            &["accepted"]
        } else if excess.is_some_and(|excess| *excess > 0) {
            &["lane full", "accepted"]
        } else {
            &["lane full"]
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.report.is_some()
    }

    pub(crate) fn take_pass(&mut self) -> Duration {
        std::mem::take(&mut self.pass)
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.pass += time;
    }

    /// A sender has a message.
    pub(crate) fn offered(&mut self, message: &Message, submit: bool) {
        let entry = Entry {
            message: message.clone(),
            has_receipt: submit,
            found_room: !self.is_full(message.key),
            waited: false,
            attempts: 0,
            earlier: 0,
            refusals: 0,
            settled: None,
            resolved: false,
        };
        self.messages.insert(message.id, entry);
        self.senders.push(message.id);
    }

    /// A sender that waited is gone: its message was never here.
    pub(crate) fn cancelled(&mut self, id: Id) {
        self.senders.retain(|sender| *sender != id);
        self.messages.remove(&id);
    }

    pub(crate) fn receipt_dropped(&mut self, id: Id) {
        self.entry(id).has_receipt = false;
    }

    pub(crate) fn decided(&mut self, key: Key, decision: Decision) {
        let head = *self.lanes[&key].front().expect("it was there");
        match decision {
            Decision::Resume | Decision::Replace => {
                let entry = self.entry(head);
                entry.earlier += std::mem::take(&mut entry.attempts);
                entry.refusals = 0;
                if decision == Decision::Replace {
                    entry.earlier = 0;
                }
                self.heads.insert(head, Doing::Waits(Work::Attempt(1)));
            }
            Decision::Skip => {
                self.settle(head, Settled::Discarded);
                self.advance(head);
            }
        }
    }

    pub(crate) fn end(&mut self, end: End) {
        match end {
            End::Drain(within) => {
                self.stage = self.stage.max(Stage::Draining);
                self.deadline = within.map(|within| Instant::now() + within);
                let halted = self
                    .heads
                    .iter()
                    .filter(|(_, doing)| **doing == Doing::Halted);
                let halted: Vec<_> = halted.map(|(id, _)| *id).collect();
                halted.into_iter().for_each(|id| self.hand_back(id));
            }
            End::Close => self.stop(Stage::Closing),
            End::Abort => self.stop(Stage::Aborting),
        }
    }

    /// Nothing starts any more. What is neither with its handler nor with the sink goes back.
    pub(super) fn stop(&mut self, stage: Stage) {
        self.stage = self.stage.max(stage);
        for (id, doing) in self.heads.clone() {
            match doing {
                Doing::Runs { .. } | Doing::Posts => self.hand_back_behind(id),
                Doing::Waits(_) | Doing::BacksOff { .. } | Doing::Halted => self.hand_back(id),
            }
        }
    }
}
