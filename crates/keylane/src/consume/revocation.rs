//! The end of generations while work of them is here.

use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_source::Generation;

use super::held::{GenerationState, HeldDelivery};
use crate::slots::Slots;

/// How long an attempt may take to be dropped. A handler that blocks its thread cannot be.
const GRACE: Duration = Duration::from_millis(200);

/// How often what came in at the moment of the revoke is looked for.
pub(super) const SWEEP: Duration = Duration::from_millis(20);

/// Messages that are being taken back.
pub(super) struct Revocation<G> {
    /// `None`: all that are held.
    pub(super) generations: Option<Vec<Generation>>,
    /// Whether the source waits for [`release`](keylane_source::Source::release).
    pub(super) is_told: bool,
    /// When the attempts in flight are dropped.
    drop_at: Option<Instant>,
    dropped: bool,
    given_up: bool,
    next_sweep: Instant,
    /// Makes the engine look at jobs before they start.
    _guard: G,
}

/// What is to be done for a revocation now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Look again for messages that have not started.
    Sweep,
    /// Drop the attempts in flight.
    Drop,
    /// Some attempts cannot be dropped: go on without them.
    GiveUp,
}

impl<G> Revocation<G> {
    pub(super) fn new(
        generations: Option<Vec<Generation>>,
        is_told: bool,
        now: Instant,
        within: Duration,
        guard: G,
    ) -> Self {
        Self {
            generations,
            is_told,
            drop_at: now.checked_add(within),
            dropped: false,
            given_up: false,
            next_sweep: now + SWEEP,
            _guard: guard,
        }
    }

    /// Whether this message is one of those.
    pub(super) fn concerns(&self, generation: Generation, standing: GenerationState) -> bool {
        match &self.generations {
            Some(generations) => generations.contains(&generation),
            None => standing != GenerationState::Live,
        }
    }

    /// The slots of it that are still held.
    pub(super) fn slots<P>(&self, held: &Slots<HeldDelivery<P>>) -> Vec<u32> {
        let concerned =
            |(_, held): &(u32, &HeldDelivery<P>)| self.concerns(held.generation, held.standing);
        held.iter()
            .filter(concerned)
            .map(|(slot, _)| slot)
            .collect()
    }

    /// What is due now.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if now < self.next_sweep {
            return Due::Nothing;
        }
        self.next_sweep = now + SWEEP;
        match self.drop_at {
            Some(at) if now >= at + GRACE && self.dropped && !self.given_up => {
                self.given_up = true;
                Due::GiveUp
            }
            Some(at) if now >= at => {
                self.dropped = true;
                Due::Drop
            }
            _ => Due::Sweep,
        }
    }

    /// When to ask next what is due.
    pub(super) fn wake_at(&self) -> Instant {
        self.next_sweep
    }
}
