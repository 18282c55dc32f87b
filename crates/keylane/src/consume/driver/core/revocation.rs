//! The end of generations while work of them is here.

use std::time::Duration;

use keylane_rt::clock::Instant;
use keylane_source::Generation;

use super::held::{GenerationState, Held, HeldDelivery};

/// How long an attempt may take to be dropped. A handler that blocks its thread cannot be.
const GRACE: Duration = Duration::from_millis(200);

/// How often what came in at the moment of the revoke is looked for.
pub(in super::super) const SWEEP: Duration = Duration::from_millis(20);

/// Messages that are being taken back.
#[derive(Debug)]
pub(super) struct Revocation {
    /// `None`: all that are held.
    pub(super) generations: Option<Vec<Generation>>,
    /// Whether the source waits for [`release`](keylane_source::Source::release).
    pub(super) is_told: bool,
    /// When the attempts in flight are dropped.
    drop_at: Option<Instant>,
    stage: Stage,
    next_sweep: Instant,
}

/// How far the attempts in flight are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    MayFinish,
    Dropped,
    /// They do not end. What of the revocation has not started must not start all the same.
    GivenUp,
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

impl Revocation {
    pub(super) fn new(
        generations: Option<Vec<Generation>>,
        is_told: bool,
        now: Instant,
        within: Duration,
    ) -> Self {
        Self {
            generations,
            is_told,
            drop_at: now.checked_add(within),
            stage: Stage::MayFinish,
            next_sweep: now + SWEEP,
        }
    }

    /// Whether this message is one of those.
    pub(super) fn concerns<P>(&self, held: &HeldDelivery<P>) -> bool {
        match &self.generations {
            Some(generations) => generations.contains(&held.generation),
            None => held.standing != GenerationState::Live,
        }
    }

    /// The slots of it that are still held.
    pub(super) fn slots<P>(&self, held: &Held<P>) -> Vec<u32> {
        held.slots(|held| self.concerns(held))
    }

    /// What is due now.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if now < self.next_sweep {
            return Due::Nothing;
        }
        self.next_sweep = now + SWEEP;
        match self.drop_at {
            Some(at) if now >= at + GRACE && self.stage == Stage::Dropped => {
                self.stage = Stage::GivenUp;
                Due::GiveUp
            }
            Some(at) if now >= at => {
                if self.stage == Stage::MayFinish {
                    self.stage = Stage::Dropped;
                }
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
