//! The end: the remaining messages go back, and the source is closed.

use std::fmt;
use std::hash::Hash;

use keylane_rt::clock::Instant;
use keylane_source::Source;

use super::call::call;
use super::state::{Driver, Phase};
use crate::watching::SourceEvent;

impl<K, M, O, E, S> Driver<K, M, O, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    S: Source<Message = M>,
{
    /// Takes nothing more in, and hands back at this time what has not started.
    pub(super) fn stop_at(&mut self, at: Option<Instant>) {
        let is_open = self.is_open();
        match &mut self.phase {
            Phase::Stopping { hand_back_at, .. } => {
                // The earliest counts.
                *hand_back_at =
                    hand_back_at.map_or(at, |before| Some(at.map_or(before, |at| at.min(before))));
            }
            phase => {
                *phase = Phase::Stopping {
                    hand_back_at: at,
                    handed_back: false,
                    is_open,
                };
                self.publish_state();
            }
        }
    }

    /// The dispatcher takes no more messages: what is in no lane goes back.
    pub(super) async fn refuse_if_closed(&mut self) {
        if !self.inlet.is_closed() {
            return;
        }
        if self.phase == Phase::Running {
            self.stop_at(None);
        }
        let mut slots = self.inlet.extract(|_| true);
        slots.extend(self.unplaceable.drain(..).map(|(_, slot)| slot));
        if !slots.is_empty() {
            self.give_back(slots).await;
        }
    }

    /// Nothing is left, or the dispatcher has ended: confirms what was told, and closes the source.
    pub(super) async fn finish(&mut self) {
        // What was lost with a panic, and what a closed dispatcher never took.
        let left: Vec<u32> = self.held.iter().map(|(slot, _)| slot).collect();
        self.phase = Phase::Stopping {
            hand_back_at: None,
            handed_back: true,
            is_open: self.is_open(),
        };
        self.give_back(left).await;
        let limit = self.settings.stall_after;
        let mut confirmed = self.is_open();
        if confirmed {
            if let Err(error) = call(limit, self.source.confirm()).await {
                self.report_failure(&error.to_string());
                confirmed = false;
            }
            if let Err(error) = call(limit, self.source.close()).await {
                self.report_failure(&error.to_string());
            }
        }
        self.notify(SourceEvent::Ended);
        self.control.end(confirmed, self.unconfirmed);
    }
}
