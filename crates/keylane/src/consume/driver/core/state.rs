//! The state, and what the task may ask of it.

use keylane_rt::clock::Instant;
use keylane_source::{Features, Hold};

use super::super::super::report::IntakeStats;
use super::super::super::settings::{Guarantee, IntakeSettings};
use super::action::{Action, Actions};
use super::failures::Failures;
use super::held::GenerationState;
use super::ledger::Ledger;
use super::parts::Parts;
use super::phase::{Flow, Phase};
use super::revocations::Revocations;
use super::silence::Silence;
use super::trouble::later;

/// What is fixed for the life of a driver.
#[derive(Debug)]
pub(in super::super) struct Terms {
    pub(in super::super) settings: IntakeSettings,
    /// Most messages that are held.
    pub(in super::super) most_held: usize,
    pub(in super::super) features: Features,
    /// Whether the source is told of attempts before they start.
    pub(in super::super) has_guard: bool,
}

/// What the driver of a source knows, and what it decides.
#[derive(Debug)]
pub(in super::super) struct Core<P> {
    pub(super) terms: Terms,
    pub(super) phase: Phase,
    pub(in super::super) ledger: Ledger<P>,
    pub(super) revocations: Revocations,
    pub(super) silence: Silence,
    /// When what has settled was last read.
    pub(super) settled_at: Instant,
    /// When leases are extended.
    pub(super) extend_at: Instant,
    /// When the last extension was asked for, and when the last one that has succeeded.
    pub(super) extends_since: Instant,
    pub(super) extended_at: Option<Instant>,
    pub(super) failures: Failures,
    /// How often the source was opened.
    pub(super) opened: u64,
    /// What of the source fails while the rest goes on.
    pub(super) parts: Parts,
    pub(super) actions: Actions<P>,
}

impl<P: Clone + PartialEq> Core<P> {
    pub(in super::super) fn new(terms: Terms, now: Instant) -> Self {
        Self {
            phase: Phase::Waiting {
                open_at: now,
                flow: Flow::On,
            },
            ledger: Ledger::new(),
            revocations: Revocations::new(terms.settings.revoke_within),
            silence: Silence::new(now),
            settled_at: now,
            extend_at: now,
            extends_since: now,
            extended_at: None,
            failures: Failures::new(terms.settings.longest_pause),
            opened: 0,
            parts: Parts::default(),
            actions: Actions::new(),
            terms,
        }
    }

    /// The next thing to do.
    #[inline]
    pub(in super::super) fn next_action(&mut self) -> Option<Action<P>> {
        self.actions.next()
    }

    pub(in super::super) fn settings(&self) -> &IntakeSettings {
        &self.terms.settings
    }

    pub(in super::super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the engine is to look at jobs before they start: the source counts attempts, or
    /// messages are taken back. One that was on its way to its lane at a recall must not overtake
    /// one that was found there, so it looks until the last of them has settled.
    pub(in super::super) fn guards_starts(&self) -> bool {
        let counts = self.terms.has_guard || self.terms.features.does_count_attempts();
        counts || !self.revocations.is_empty() || self.ledger.held.recalled() > 0
    }

    /// Whether messages settle before they run.
    pub(in super::super) fn settles_first(&self) -> bool {
        !self.phase.stops() && self.terms.settings.guarantee == Guarantee::AtMostOnce
    }

    /// Whether a message that is in no lane yet goes back. Without a slot it was settled before it
    /// could run, and is dropped.
    pub(in super::super) fn goes_back(&self, slot: Option<u32>) -> bool {
        match slot {
            Some(slot) => self.ledger.goes_back(slot),
            None => self.phase.went_back(),
        }
    }

    /// The position of a message that is here.
    pub(in super::super) fn held_position(&self, slot: u32) -> Option<&P> {
        self.ledger.held.get(slot).map(|held| &held.position)
    }

    /// The position of a message, if its source may still be told of it.
    pub(in super::super) fn position_of(&self, slot: u32) -> Option<P> {
        let held = self.ledger.held.get(slot)?;
        let is_told = held.standing != GenerationState::Over && self.phase.is_open();
        is_told.then(|| held.position.clone())
    }

    /// The position of a message that is held, and the producer's id.
    pub(in super::super) fn names_of(&self, slot: u32) -> Option<(&P, Option<&str>)> {
        let held = self.ledger.held.get(slot)?;
        Some((&held.position, held.id.as_deref()))
    }

    /// The hash of the key of a message that was received.
    #[inline]
    pub(in super::super) fn set_hash(&mut self, slot: u32, hash: u64) {
        self.ledger.held.set_hash(slot, hash);
    }

    /// Of each generation the message that was handed over first and has not settled: its position,
    /// and the hash of its key. Those without a lane, or whose lane may change, are left out.
    pub(in super::super) fn fronts(&self) -> Vec<(&P, u64)> {
        self.ledger.held.fronts()
    }

    /// Whether nothing is left to do, if nothing is in the inlet and in the hands of the source.
    pub(in super::super) fn is_over(&self) -> bool {
        self.phase.stops() && self.ledger.held.len() == 0 && self.revocations.is_empty()
    }

    /// For how long the messages are held that the last extension was for. Later ones are held for
    /// longer.
    fn hold(&self) -> Option<Hold> {
        let (lease, at) = (self.terms.features.lease_of()?, self.extended_at?);
        Some(Hold::new(lease, later(at, lease).into()))
    }

    pub(in super::super) fn show(&self, stats: &mut IntakeStats) {
        self.ledger.show(stats);
        self.failures.show(stats);
        stats.opened = self.opened;
        stats.hold = self.hold();
        stats.state = self.phase.state();
    }
}
