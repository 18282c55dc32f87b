//! The source fails: all its generations are over, and it is opened again.

use keylane_rt::clock::Instant;

use super::action::{Action, Call};
use super::failures::Severity;
use super::state::Core;
use super::trouble::Trouble;
use crate::watching::SourceEvent;

impl<P: Clone + PartialEq> Core<P> {
    pub(in super::super) fn failed(&mut self, trouble: &Trouble, now: Instant) {
        if let Trouble::Late(lasted) = *trouble {
            let stalled = SourceEvent::Stalled { lasted };
            self.actions.notify(stalled);
        }
        let (severity, open_at) = self.failures.fail(trouble, now);
        self.actions.report_failure(severity, trouble.to_string());
        self.actions.drop_calls();
        self.actions.push(Action::DropUnread);
        self.ledger.restart();
        self.revocations.lose_all();
        self.revocations
            .begin_all(now, &mut self.ledger, &mut self.actions);
        self.phase.failed(open_at);
        self.actions.publish();
    }

    /// The source has answered.
    pub(in super::super) fn answered(
        &mut self,
        call: Call<P>,
        answer: Result<(), Trouble>,
        now: Instant,
    ) {
        let is_confirm = matches!(call, Call::Confirm);
        let is_close = matches!(call, Call::Close);
        let is_extend = matches!(call, Call::Extend(_));
        if let Call::Settle(told) = call {
            self.ledger.reuse(told);
        }
        match answer {
            Ok(()) if is_confirm => {
                self.ledger.unconfirmed.clear();
                self.failures.forget();
                self.actions.publish();
            }
            Ok(()) if is_extend => {
                self.extended_at = Some(self.extends_since);
                self.actions.publish();
            }
            Ok(()) => {}
            // There is no next time.
            Err(trouble) if is_close => {
                let why = trouble.to_string();
                self.actions.report_failure(Severity::Warn, why);
            }
            Err(trouble) if is_confirm && self.phase.is_closing() => {
                let why = trouble.to_string();
                self.actions.report_failure(Severity::Warn, why);
                self.actions.drop_calls();
                self.actions.call(Call::Close);
            }
            Err(trouble) => self.failed(&trouble, now),
        }
    }
}
