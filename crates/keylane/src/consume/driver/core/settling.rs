//! Telling the source which messages have settled.

use keylane_rt::clock::Instant;
use keylane_source::Outcome;

use super::action::{Action, Call};
use super::state::Core;
use super::trouble::{Trouble, later};

impl<P: Clone + PartialEq> Core<P> {
    /// These messages have settled. `panicked`: a function of the user did so meanwhile. They are
    /// told first.
    pub(in super::super) fn settled(
        &mut self,
        settled: impl Iterator<Item = (u32, Outcome)>,
        panicked: Option<Trouble>,
        now: Instant,
    ) {
        self.settled_at = now;
        let acked = self.ledger.counts.acked;
        let (is_open, ends) = (self.phase.is_open(), self.phase.stops());
        let told = self.ledger.settle(settled, is_open, ends);
        self.actions.publish();
        if told.is_empty() {
            self.ledger.reuse(told);
        } else {
            let confirm_at = later(now, self.terms.settings.confirm_every);
            let acks = self.ledger.counts.acked - acked;
            self.ledger.unconfirmed.tell(acks, confirm_at);
            self.actions.call(Call::Settle(told));
        }
        self.release_finished(now);
        if let Some(trouble) = panicked {
            self.actions.push(Action::Fail(trouble));
        }
    }
}
