//! The generations that end, all of them together.

use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_source::Generation;

use super::action::{Actions, Unplaced};
use super::held::GenerationState;
use super::ledger::Ledger;
use super::revocation::{Due, Revocation};
use crate::engine::Revoked;
use crate::watching::SourceEvent;

#[derive(Debug)]
pub(super) struct Revocations {
    list: Vec<Revocation>,
    /// Generations that the source waits for, and whose attempts do not end in time.
    overdue: Vec<Vec<Generation>>,
    /// How long attempts in flight may go on.
    within: Duration,
}

impl Revocations {
    pub(super) fn new(within: Duration) -> Self {
        Self {
            list: Vec::new(),
            overdue: Vec::new(),
            within,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// When one of them is to be followed.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.list.iter().map(Revocation::wake_at).min()
    }

    /// Takes messages back. `generations`: `None` for all whose generations end. `how`: whether
    /// attempts in flight end now, or have time.
    pub(super) fn begin<P>(
        &mut self,
        (generations, is_told): (Option<Vec<Generation>>, bool),
        how: Revoked,
        now: Instant,
        ledger: &mut Ledger<P>,
        actions: &mut Actions<P>,
    ) {
        let within = match how {
            Revoked::InFlight => Duration::ZERO,
            _ => self.within,
        };
        let revocation = Revocation::new(generations, is_told, now, within);
        let slots = revocation.slots(&ledger.held);
        let messages = slots.len();
        actions.notify(SourceEvent::Revoked { messages });
        self.list.push(revocation);
        ledger.take_back(slots, how, actions);
        ledger.give_back_refused(Unplaced::Revoked, now, actions);
    }

    /// Takes back all whose generations end. The source does not wait for it.
    pub(super) fn begin_all<P>(
        &mut self,
        now: Instant,
        ledger: &mut Ledger<P>,
        actions: &mut Actions<P>,
    ) {
        self.begin((None, false), Revoked::Unstarted, now, ledger, actions);
    }

    /// What is lost while it is being revoked is not waited for any more.
    pub(super) fn lose(&mut self, generations: &[Generation]) {
        for revocation in &mut self.list {
            let mut revoked = revocation.generations.iter().flatten();
            let are_lost = revoked.all(|revoked| generations.contains(revoked));
            revocation.is_told &= !are_lost;
        }
    }

    /// The source has failed, and waits for none of them.
    pub(super) fn lose_all(&mut self) {
        self.overdue.clear();
        for revocation in &mut self.list {
            revocation.is_told = false;
        }
    }

    /// Does what is due by the clock. Returns whether messages were looked for that have not
    /// started.
    pub(super) fn follow<P>(
        &mut self,
        now: Instant,
        ledger: &mut Ledger<P>,
        actions: &mut Actions<P>,
    ) -> bool {
        let mut is_swept = false;
        for revocation in &mut self.list {
            let due = revocation.due(now);
            if due == Due::Nothing {
                continue;
            }
            let slots = revocation.slots(&ledger.held);
            match due {
                Due::Nothing => {}
                Due::Sweep => {
                    ledger.take_back(slots, Revoked::Unstarted, actions);
                    is_swept = true;
                }
                Due::Drop => ledger.take_back(slots, Revoked::InFlight, actions),
                Due::GiveUp => {
                    // Handlers that block their threads. Their outcomes come, and are not told. The
                    // revocation itself stays until then: what of it has not started must not.
                    let over = GenerationState::Over;
                    ledger.held.end(over, |held| revocation.concerns(held));
                    let messages = slots.len();
                    actions.notify(SourceEvent::Overdue { messages });
                    let is_told = std::mem::take(&mut revocation.is_told);
                    let generations = revocation.generations.clone();
                    self.overdue.extend(generations.filter(|_| is_told));
                }
            }
        }
        is_swept
    }

    /// Takes out the generations that the source waits for in vain.
    pub(super) fn take_overdue(&mut self) -> Vec<Vec<Generation>> {
        std::mem::take(&mut self.overdue)
    }

    /// Takes out those of which nothing is left. Returns the generations that the source waits for.
    pub(super) fn take_finished<P>(&mut self, ledger: &Ledger<P>) -> Vec<Vec<Generation>> {
        let is_finished = |revocation: &mut Revocation| revocation.slots(&ledger.held).is_empty();
        let finished = self.list.extract_if(.., is_finished);
        let told = finished.filter(|revocation| revocation.is_told);
        told.filter_map(|revocation| revocation.generations)
            .collect()
    }
}
