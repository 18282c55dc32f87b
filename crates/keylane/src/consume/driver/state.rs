//! The state of the driver, and the part that it publishes.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use keylane_rt::clock::{Alarm, Instant};
use keylane_rt::{Arc, cut, mpsc};
use keylane_source::{Deliveries, Features, Outcome, Settlement, Source};

use super::super::control::{Command, Control};
use super::super::guard::PositionGuard;
use super::super::held::HeldDelivery;
use super::super::inlet::Inlet;
use super::super::parts::Parts;
use super::super::report::{IntakeState, IntakeStats};
use super::super::revocation::Revocation;
use super::super::settings::{Guarantee, IntakeSettings};
use crate::dispatcher::Dispatcher;
use crate::engine::{GuardedStarts, LetterRequest, Registration, SlotGuard, SourceSlot};
use crate::error::ConsumeError;
use crate::slots::Slots;
use crate::watching::SourceEvent;

/// Most characters kept of an error.
const LONGEST_WHY: usize = 256;

pub(in super::super) struct Driver<K, M, O, E, S: Source<Message = M>> {
    pub(super) source: S,
    pub(super) name: String,
    pub(super) settings: IntakeSettings,
    /// Most messages that are held.
    pub(super) most_held: usize,
    pub(super) inlet: Inlet<K, M, O, E>,
    /// By the slot that the engine knows.
    pub(super) held: Slots<HeldDelivery<S::Position>>,
    /// The bytes of those.
    pub(super) held_bytes: usize,
    pub(super) registration: Registration,
    pub(super) guard: Option<Arc<PositionGuard<S::Position>>>,
    /// For a source that counts attempts: all starts are told, and those before count.
    pub(super) _counts: Option<GuardedStarts>,
    pub(super) revocations: Vec<Revocation<GuardedStarts>>,
    /// How many messages the source has recalled that have not settled, if any. As long as there
    /// are, the engine looks at jobs before they start: one that was on its way to its lane at the
    /// recall must not overtake one that was found there.
    pub(super) recalled: Option<(usize, GuardedStarts)>,
    /// One has begun, and what of it is in no lane yet was not given back.
    pub(super) has_unplaced: bool,
    pub(super) phase: Phase,
    pub(super) paused: bool,
    /// When the source last said something. Later by the time in which it was not asked.
    pub(super) heard_at: Instant,
    /// Since when it is not asked.
    pub(super) busy_since: Instant,
    /// When what has settled was last read.
    pub(super) settled_at: Instant,
    /// When leases are extended, and acks are confirmed.
    pub(super) extend_at: Instant,
    pub(super) confirm_at: Instant,
    /// How often the source has failed since it last was well: it confirmed something, or was idle.
    pub(super) failures: u32,
    pub(super) features: Features,
    /// What of the source fails while the rest goes on.
    pub(super) parts: Parts,
    /// Messages that cannot be placed, and when they go back. Not at once: a source with nack would
    /// hand them over again at full speed.
    pub(super) unplaceable: Vec<(Instant, u32)>,
    /// The source has come to its end.
    pub(super) ended: bool,
    /// Acks told and not confirmed.
    pub(super) unconfirmed: u64,
    /// Whether anything was told that is not confirmed: dead letters too.
    pub(super) is_unconfirmed: bool,
    /// How many messages waited beside full lanes in the last turn, and were deferred.
    pub(super) seen_aside: (usize, usize),
    pub(super) control: Arc<Control>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) deliveries: Deliveries<M, S::Position>,
    pub(super) settled: Vec<(u32, Outcome)>,
    pub(super) letters: Vec<LetterRequest>,
    pub(super) told: Vec<Settlement<S::Position>>,
    /// Whether messages could be placed, and the dispatcher is to look at others first.
    pub(super) is_behind: bool,
    /// Whether the source is asked first in the next turn, so that neither side waits for ever.
    pub(super) source_first: bool,
    pub(super) alarm: Option<Alarm>,
}

/// How far the driver is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    /// The source is opened at this time.
    Opening(Instant),
    Running,
    /// The source is open, or was never. Nothing more comes in.
    Stopping {
        /// When what has not started goes back.
        hand_back_at: Option<Instant>,
        handed_back: bool,
        is_open: bool,
    },
}

impl<K, M, O, E, S> Driver<K, M, O, E, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
    S: Source<Message = M>,
{
    pub(in super::super) fn new(
        dispatcher: Dispatcher<K, M, O, E>,
        (source, features): (S, Features),
        settings: IntakeSettings,
        control: Arc<Control>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<Self, ConsumeError> {
        let engine = &dispatcher.engine;
        let most_held = settings.most_held(engine.concurrency());
        let guard = source.start_guard();
        let guard = guard.map(|guard| Arc::new(PositionGuard::new(guard)));
        let counts = guard.is_some() || features.does_count_attempts();
        let counts = counts.then(|| engine.guard_starts());
        let slots = guard.clone().map(|guard| guard as Arc<dyn SlotGuard>);
        let registration = engine.sources.register(slots);
        let registration = registration.ok_or(ConsumeError::Closed)?;
        let now = engine.clocks.now();
        // What is settled before it runs has no slot.
        let defers = match features.has_random_access() {
            true if settings.guarantee != Guarantee::AtMostOnce => settings.deferred,
            _ => 0,
        };
        Ok(Self {
            name: source.name(),
            most_held,
            inlet: Inlet::new(dispatcher, registration.source, defers, most_held),
            settings,
            held: Slots::new(),
            held_bytes: 0,
            registration,
            guard,
            _counts: counts,
            revocations: Vec::new(),
            recalled: None,
            has_unplaced: false,
            phase: Phase::Opening(now),
            failures: 0,
            features,
            parts: Parts::default(),
            unplaceable: Vec::new(),
            ended: false,
            paused: false,
            heard_at: now,
            busy_since: now,
            settled_at: now,
            extend_at: now,
            confirm_at: now,
            unconfirmed: 0,
            is_unconfirmed: false,
            seen_aside: (0, 0),
            control,
            commands,
            deliveries: Deliveries::new(0, now.into()),
            settled: Vec::new(),
            letters: Vec::new(),
            told: Vec::new(),
            is_behind: false,
            source_first: false,
            alarm: None,
            source,
        })
    }

    pub(super) fn lease(&self) -> Option<Duration> {
        self.features.lease_of()
    }

    pub(super) fn is_open(&self) -> bool {
        match self.phase {
            Phase::Opening(..) => false,
            Phase::Running => true,
            Phase::Stopping { is_open, .. } => is_open,
        }
    }

    pub(super) fn at(&self, slot: u32) -> SourceSlot {
        let source = self.registration.source;
        SourceSlot { source, slot }
    }

    pub(super) fn sources(&self) -> &crate::engine::Sources {
        &self.inlet.dispatcher.engine.sources
    }

    pub(super) fn publish(&self, change: impl FnOnce(&mut IntakeStats)) {
        let aside = &self.inlet.aside;
        self.control.publish(|stats| {
            change(stats);
            stats.held = self.held.len();
            stats.held_bytes = self.held_bytes;
            (stats.aside, stats.deferred) = (aside.len(), aside.deferred());
        });
    }

    pub(super) fn publish_state(&self) {
        let state = match self.phase {
            Phase::Stopping { .. } => IntakeState::Stopping,
            Phase::Opening(..) => IntakeState::Opening,
            Phase::Running if self.paused => IntakeState::Paused,
            Phase::Running => IntakeState::Running,
        };
        self.publish(|stats| stats.state = state);
    }

    /// Publishes how many messages wait beside full lanes, if that has changed.
    pub(super) fn publish_aside(&mut self) {
        let aside = &self.inlet.aside;
        let aside = (aside.len(), aside.deferred());
        if std::mem::replace(&mut self.seen_aside, aside) != aside {
            self.publish(|_| {});
        }
    }

    pub(super) fn report_failure(&self, why: &str) {
        tracing::error!(target: "keylane", source = %self.name, error = %why, "the source failed");
        let why = cut(why.to_owned(), LONGEST_WHY);
        self.control
            .publish(|stats| stats.last_error = Some(why.clone()));
        self.notify(SourceEvent::Failed { why });
    }

    pub(super) fn notify(&self, what: SourceEvent) {
        self.inlet
            .dispatcher
            .engine
            .probe
            .notify_source(&self.name, what);
    }
}

impl<K, M, O, E, S: Source<Message = M>> Drop for Driver<K, M, O, E, S> {
    fn drop(&mut self) {
        // The runtime stops, or this task has panicked.
        self.control.end(false, self.unconfirmed);
    }
}
