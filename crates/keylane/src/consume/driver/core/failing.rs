//! The source fails: all its generations are over, and it is opened again.

use std::time::Duration;

use keylane_rt::clock::Instant;

use super::action::{Action, Call};
use super::held::GenerationState;
use super::state::Core;
use super::trouble::{Trouble, later};
use crate::engine::Revoked;
use crate::watching::SourceEvent;

/// The first pause before a source that failed is opened again.
const PAUSE: Duration = Duration::from_millis(100);

impl<P: Clone + PartialEq> Core<P> {
    pub(in super::super) fn failed(&mut self, trouble: &Trouble, now: Instant) {
        if let Trouble::Late(lasted) = *trouble {
            let stalled = SourceEvent::Stalled { lasted };
            self.actions.push(Action::Notify(stalled));
        }
        self.report_failure(trouble.to_string());
        self.actions.drop_calls();
        self.actions.push(Action::DropUnread);
        self.counts.restart(self.unconfirmed.clear());
        self.held.end(GenerationState::Over, |_| true);
        for revocation in &mut self.revocations {
            revocation.is_told = false;
        }
        self.begin_revocation(None, false, Revoked::Unstarted, now);
        self.open_later(now);
        self.publish();
    }

    /// So many messages were pushed before a failure, and never taken in.
    pub(in super::super) fn unread(&mut self, messages: usize) {
        self.counts.receive_given_back(messages as u64);
    }

    /// A function of the user panicked while messages settled. They are told first.
    pub(in super::super) fn fail_after(&mut self, trouble: Trouble) {
        self.actions.push(Action::Fail(trouble));
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
        if let Call::Settle(mut told) = call {
            told.clear();
            self.spare = told;
        }
        match answer {
            Ok(()) if is_confirm => {
                self.unconfirmed.clear();
                self.failures = 0;
            }
            Ok(()) => {}
            // There is no next time.
            Err(trouble) if is_close => self.report_failure(trouble.to_string()),
            Err(trouble) if is_confirm && self.phase.is_closing() => {
                self.report_failure(trouble.to_string());
                self.actions.drop_calls();
                self.actions.call(Call::Close);
            }
            Err(trouble) => self.failed(&trouble, now),
        }
    }

    pub(in super::super) fn report_failure(&mut self, why: String) {
        self.actions.push(Action::ReportFailure(why));
    }

    /// Opens the source after a pause that grows with each failure in a row, unless the driver
    /// stops.
    pub(super) fn open_later(&mut self, now: Instant) {
        if self.phase.stops() {
            return self.phase.failed(now);
        }
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let longest = self.terms.settings.longest_pause;
        let pause = PAUSE.saturating_mul(factor).min(longest);
        self.failures = self.failures.saturating_add(1);
        self.phase.failed(later(now, pause));
    }
}
