//! The state, and what the task may ask of it.

use keylane_rt::clock::Instant;
use keylane_source::{Features, Settlement};

use super::super::super::report::IntakeStats;
use super::super::super::settings::{Guarantee, IntakeSettings};
use super::action::{Action, Actions};
use super::counts::Counts;
use super::held::{GenerationState, Held};
use super::parts::Parts;
use super::phase::{Flow, Phase};
use super::revocation::Revocation;
use super::silence::Silence;
use super::unconfirmed::Unconfirmed;

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
    pub(super) held: Held<P>,
    /// Messages that were not placed, and when they go back.
    pub(super) unplaceable: Vec<(Instant, u32)>,
    pub(super) revocations: Vec<Revocation>,
    pub(super) unconfirmed: Unconfirmed,
    pub(super) silence: Silence,
    /// When what has settled was last read.
    pub(super) settled_at: Instant,
    /// When leases are extended.
    pub(super) extend_at: Instant,
    /// How often the source has failed since it last was well: it confirmed something, or was idle.
    pub(super) failures: u32,
    /// What of the source fails while the rest goes on.
    pub(super) parts: Parts,
    pub(super) counts: Counts,
    pub(super) actions: Actions<P>,
    /// Memory for the next settlements.
    pub(super) spare: Vec<Settlement<P>>,
}

impl<P: Clone + PartialEq> Core<P> {
    pub(in super::super) fn new(terms: Terms, now: Instant) -> Self {
        Self {
            terms,
            phase: Phase::Waiting {
                open_at: now,
                flow: Flow::On,
            },
            held: Held::new(),
            unplaceable: Vec::new(),
            revocations: Vec::new(),
            unconfirmed: Unconfirmed::default(),
            silence: Silence::new(now),
            settled_at: now,
            extend_at: now,
            failures: 0,
            parts: Parts::default(),
            counts: Counts::default(),
            actions: Actions::new(),
            spare: Vec::new(),
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

    /// Whether the engine is to look at jobs before they start: the source counts attempts, or
    /// messages are taken back. One that was on its way to its lane at a recall must not overtake
    /// one that was found there, so it looks until the last of them has settled.
    pub(in super::super) fn guards_starts(&self) -> bool {
        let counts = self.terms.has_guard || self.terms.features.does_count_attempts();
        counts || !self.revocations.is_empty() || self.held.recalled() > 0
    }

    pub(in super::super) fn is_open(&self) -> bool {
        self.phase.is_open()
    }

    pub(in super::super) fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::Opening(_))
    }

    /// Whether messages settle before they run.
    pub(in super::super) fn settles_first(&self) -> bool {
        !self.phase.stops() && self.terms.settings.guarantee == Guarantee::AtMostOnce
    }

    /// Whether the engine knows something of a slot, and is to forget it when the message settles.
    #[inline]
    pub(in super::super) fn is_marked(&self, slot: u32) -> bool {
        self.held.get(slot).is_some_and(|held| held.marked)
    }

    /// Whether a message that is in no lane yet goes back. Without a slot it was settled before it
    /// could run, and is dropped.
    pub(in super::super) fn goes_back(&self, slot: Option<u32>) -> bool {
        let Some(slot) = slot else {
            return self.phase.went_back();
        };
        let held = self.held.get(slot);
        held.is_some_and(|held| held.standing != GenerationState::Live || held.recalled)
    }

    /// Whether nothing is left to do, if nothing is in the inlet and in the hands of the source.
    pub(in super::super) fn is_over(&self) -> bool {
        self.phase.stops() && self.held.len() == 0 && self.revocations.is_empty()
    }

    pub(in super::super) fn show(&self, stats: &mut IntakeStats) {
        self.counts.show(stats);
        stats.state = self.phase.state();
        stats.held = self.held.len();
        stats.held_bytes = self.held.bytes();
    }

    pub(super) fn publish(&mut self) {
        self.actions.push(Action::Publish);
    }
}

impl<P> Core<P> {
    /// Acks that the source was told and has not confirmed.
    pub(in super::super) fn unconfirmed(&self) -> u64 {
        self.unconfirmed.acks()
    }
}
