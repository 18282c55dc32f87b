//! The first message of a lane, in the ready queue, meets those that have come since.

use keylane_rt::clock::Instant;

use super::super::gate::Gate;
use super::super::item::Item;
use super::super::rules::{PlanRules, Rules, Survivor};
use super::effects::{Effects, Few};
use super::state::{State, Transition};
use super::{Lane, Spares};

impl<T: Item, H, G: Gate> Lane<T, H, G> {
    /// Combines the first message, which a runner has taken out of the ready queue, with those that
    /// came after it, and decides what starts. Messages that have to be merged are returned in
    /// [`Rare::merge`](super::effects::Rare::merge): they have started, and the merged message runs
    /// unless it has to [come back](Self::take_back).
    pub fn rejoin(
        &mut self,
        item: T,
        now: Instant,
        rules: &Rules,
        spares: &Spares<T>,
        effects: &mut Effects<T, H, G>,
    ) {
        let coalesce = match &rules.plan {
            PlanRules::Coalesce(coalesce) => Some(*coalesce),
            PlanRules::Fifo | PlanRules::Batch(_) | PlanRules::Sequence(_) => None,
        };
        let merges = coalesce.is_some_and(|coalesce| coalesce.survivor == Survivor::Merged);
        if merges && !self.parked.is_empty() {
            let newcomers = std::iter::from_fn(|| self.parked.pop()).collect();
            effects.rare_mut().merge = Some((item, Few::More(newcomers)));
            // They are all out, and what comes from now on meets no head that waits.
            self.transition(Transition::Start, State::Ready);
            return self.open_or_renew_gate(rules, effects);
        }
        self.transition(Transition::Requeue, State::Scheduled);
        let coalesce = coalesce.filter(|_| !merges);
        let newer = coalesce.and_then(|coalesce| Some((coalesce, self.parked.pop_newest()?)));
        self.parked.push_front(item, spares);
        if let Some((coalesce, newer)) = newer {
            self.coalesce(coalesce, newer, rules, spares, effects);
        }
        self.next(now, rules, effects);
        if self.state.wait_reason().is_some() {
            // It had no timer in the ready queue.
            let expires_at = self.parked.oldest().and_then(Item::expires_at);
            self.parked.arm_expiry(expires_at, effects);
        }
    }
}
