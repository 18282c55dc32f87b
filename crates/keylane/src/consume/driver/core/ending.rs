//! Commands of the user, and the end.

use keylane_rt::clock::Instant;

use super::super::super::control::Command;
use super::action::{Action, Call, Unplaced};
use super::phase::{Flow, Phase};
use super::state::Core;
use crate::watching::SourceEvent;

impl<P: Clone + PartialEq> Core<P> {
    pub(in super::super) fn command(&mut self, command: Command) {
        match command {
            Command::Pause => self.phase.flow(Flow::Paused),
            Command::Resume => self.phase.flow(Flow::On),
            Command::Stop(at) => return self.stop(at),
        }
        self.actions.publish();
    }

    /// Nothing more is taken in, and what has not started goes back at this time.
    pub(super) fn stop(&mut self, at: Option<Instant>) {
        if self.phase.stop(at) {
            self.actions.publish();
        }
    }

    /// The source has nothing more.
    pub(in super::super) fn ended(&mut self) {
        self.stop(None);
        self.phase.source_ended();
    }

    /// The dispatcher takes no more messages: what is in no lane goes back.
    pub(in super::super) fn closed(&mut self, now: Instant) {
        match self.phase {
            Phase::Waiting { .. } | Phase::Opening(_) => self.stop(Some(now)),
            Phase::Running(_) => self.stop(None),
            Phase::Stopping { .. } | Phase::Closing(_) => {}
        }
        let actions = &mut self.actions;
        self.ledger.give_back_refused(Unplaced::All, now, actions);
    }

    /// Nothing is left, or the dispatcher has ended: what was told is confirmed, and the source is
    /// closed.
    pub(in super::super) fn finish(&mut self, now: Instant) {
        self.phase.finish();
        // What was lost with a panic, and what a closed dispatcher never took.
        let left = self.ledger.take_left();
        match left.is_empty() {
            true => self.release_finished(now),
            false => self.actions.push(Action::GiveBack(left, Unplaced::None)),
        }
        if self.phase.is_open() {
            self.actions.call(Call::Confirm);
            self.actions.call(Call::Close);
        }
        self.actions.notify(SourceEvent::Ended);
    }
}
