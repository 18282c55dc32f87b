//! Opening the source.

use keylane_rt::clock::Instant;

use super::action::{Action, Call};
use super::state::Core;
use super::trouble::Trouble;
use crate::watching::SourceEvent;

impl<P: Clone + PartialEq> Core<P> {
    /// Opens the source if it is time.
    #[inline]
    pub(in super::super) fn open_if_due(&mut self, now: Instant) {
        if self.phase.opens(now) {
            self.actions.call(Call::Open);
        }
    }

    pub(in super::super) fn opened(&mut self, now: Instant) {
        self.silence.end(now);
        self.phase.opened();
        self.opened += 1;
        // What was held before comes anew.
        self.extended_at = None;
        if self.failures.any() {
            self.actions.push(Action::SayOpenAgain);
        }
        if self.parts.forget() {
            self.actions.push(Action::ShowParts(Vec::new()));
        }
        self.actions.publish();
        self.actions.notify(SourceEvent::Opened);
    }

    pub(in super::super) fn open_failed(&mut self, trouble: &Trouble, now: Instant) {
        let why = match *trouble {
            Trouble::Failed(ref error) => error.to_string(),
            Trouble::Late(lasted) => {
                let stalled = SourceEvent::Stalled { lasted };
                self.actions.notify(stalled);
                "`open` did not return in time".to_owned()
            }
        };
        let (severity, open_at) = self.failures.fail(trouble, now);
        self.actions.report_failure(severity, why);
        self.phase.failed(open_at);
        self.actions.publish();
    }
}
