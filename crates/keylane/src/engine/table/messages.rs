//! The messages of one key.

use keylane_lanes::State;
use keylane_rt::clock::Instant;

use super::LaneTable;
use crate::engine::lane::Lane;
use crate::engine::message::Envelope;
use crate::engine::sources::SourceSlot;
use crate::lane::MessageView;
use crate::types::Spec;

/// A message, and where its source knows it.
pub(crate) type Listed = (MessageView, Option<SourceSlot>);

impl<T: Spec> LaneTable<T> {
    /// The first messages of a lane, in the order of acceptance. A head on its way to a runner is
    /// not among them.
    pub(crate) fn messages(
        &self,
        key: &T::Key,
        hash: u64,
        most: usize,
        now: Instant,
    ) -> Vec<Listed> {
        let messages = self.lanes.peek(hash, key, |lane| {
            let head = self.head_of(lane, now);
            let parked = lane.parked().iter();
            let parked = parked.map(|parked| self.listed(&parked.envelope, false, now));
            head.into_iter().chain(parked).take(most).collect()
        });
        messages.unwrap_or_default()
    }

    fn head_of(&self, lane: &Lane<T>, now: Instant) -> Option<Listed> {
        match lane.state() {
            State::Running { accepted_at, .. } => {
                let view = MessageView {
                    id: *accepted_at,
                    age: self.clocks.waited(*accepted_at, now),
                    is_head: true,
                    version: 0,
                    origin: None,
                };
                Some((view, None))
            }
            State::Backoff { head, .. } | State::Halted { head } => {
                Some(self.listed(&head.envelope, true, now))
            }
            _ => None,
        }
    }

    fn listed(&self, envelope: &Envelope<T>, is_head: bool, now: Instant) -> Listed {
        let view = MessageView {
            id: envelope.accepted_at,
            age: self.clocks.waited(envelope.accepted_at, now),
            is_head,
            version: envelope.obligation.version(),
            origin: None,
        };
        (view, envelope.obligation.source())
    }
}
