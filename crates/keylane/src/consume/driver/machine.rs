//! The core, and what it acts on beside the source: the inlet, the engine, the handle.

use std::fmt;

use keylane_rt::clock::{self, Instant};
use keylane_rt::unwind::{caught, dropped};
use keylane_rt::{Arc, cut};
use keylane_source::{Deliveries, Delivery, Describer, Features, Outcome, Source};

use super::super::control::Control;
use super::super::guard::PositionGuard;
use super::super::inlet::Inlet;
use super::super::port::EnginePort;
use super::super::report::IntakeStats;
use super::super::settings::{Guarantee, IntakeSettings};
use super::core::{
    Action, Call, Core, InletView, Saying, Severity, Terms, Trouble, Turn, Unplaced, panicked,
};
use crate::dispatcher::Dispatcher;
use crate::engine::SlotGuard;
use crate::error::ConsumeError;
use crate::types::{Error, Key, Message, Of, Output};
use crate::watching::SourceEvent;

/// Most characters kept of an error.
const LONGEST_WHY: usize = 256;

/// The last error of an intake whose dispatcher, or whose own task, a panic has ended.
const PANICKED: &str = "a panic outside the handlers ended the dispatcher or the intake: \
     the panic hook has printed its text";

pub(super) struct Machine<K, M, O, E, P> {
    pub(super) core: Core<P>,
    name: String,
    /// Says where a message is.
    pub(super) describer: Describer<P>,
    pub(super) inlet: Inlet<K, M, O, E>,
    pub(super) port: EnginePort<Of<K, M, O, E>>,
    guard: Option<Arc<PositionGuard<P>>>,
    control: Arc<Control>,
    pub(super) deliveries: Deliveries<M, P>,
    /// Whether messages could be placed, and the dispatcher is to look at others first.
    pub(super) is_behind: bool,
    /// How many messages waited beside full lanes in the last turn, and were deferred.
    seen_aside: (usize, usize),
}

impl<K: Key, M: Message, O: Output, E: Error, P> Machine<K, M, O, E, P>
where
    P: Clone + PartialEq + fmt::Debug + Send + Sync + 'static,
{
    pub(super) fn new(
        dispatcher: Dispatcher<K, M, O, E>,
        source: &impl Source<Message = M, Position = P>,
        features: Features,
        settings: IntakeSettings,
        control: Arc<Control>,
    ) -> Result<Self, ConsumeError> {
        let engine = &dispatcher.engine;
        let most_held = settings.most_held(engine.concurrency());
        // What is settled before it runs has no slot.
        let defers = match features.has_random_access() {
            true if settings.guarantee != Guarantee::AtMostOnce => settings.deferred,
            _ => 0,
        };
        let guard = source.start_guard();
        let guard = guard.map(|guard| Arc::new(PositionGuard::new(guard)));
        if let Some(guard) = guard.clone() {
            control.hold.begin(move || guard.hold());
        }
        let terms = Terms {
            settings,
            most_held,
            features,
            has_guard: guard.is_some(),
        };
        let now = engine.clocks.now();
        let core = Core::new(terms, now);
        let slots = guard.clone().map(|guard| guard as Arc<dyn SlotGuard>);
        let name = source.name();
        let port = EnginePort::new(engine, &name, slots, core.guards_starts())?;
        let place = (engine.id(), port.source());
        control.place.get_or_init(|| place);
        Ok(Self {
            core,
            name,
            describer: source.describer(),
            inlet: Inlet::new(dispatcher, port.source(), defers, most_held),
            port,
            guard,
            control,
            deliveries: Deliveries::new(0, now.into()),
            is_behind: false,
            seen_aside: (0, 0),
        })
    }

    /// Carries out what the core has decided, up to a call of the source.
    #[inline]
    pub(super) fn next_call(&mut self) -> Option<Call<P>> {
        while let Some(action) = self.core.next_action() {
            // The engine looks before the first mark is set, and until the last one is gone.
            if self.core.guards_starts() {
                self.port.guard_starts(true);
            }
            match action {
                Action::Call(call) => return Some(call),
                action => self.perform(action),
            }
        }
        self.port.guard_starts(self.core.guards_starts());
        None
    }

    fn perform(&mut self, action: Action<P>) {
        match action {
            // The caller's.
            Action::Call(_) => {}
            Action::Revoke { slots, how } => self.port.revoke(&slots, how),
            Action::Sweep => self.port.sweep(),
            Action::AskHeld(held) => {
                let guard = self.guard.as_ref();
                let lapsed = held
                    .into_iter()
                    .filter(|(_, position)| guard.is_some_and(|guard| !guard.holds(position)));
                let lapsed = lapsed.map(|(slot, _)| slot).collect();
                self.core.lapsed(lapsed);
            }
            Action::GiveBack(slots, unplaced) => self.give_back(slots, unplaced),
            Action::DropUnread => {
                self.core.ledger.unread(self.deliveries.len());
                dropped(self.deliveries.take());
            }
            Action::Serve => self.core.serve(clock::now()),
            Action::Fail(trouble) => self.core.failed(&trouble, clock::now()),
            Action::Publish => self.publish(),
            Action::ShowParts(failed) => self.control.publish(|stats| stats.failed_parts = failed),
            Action::Say(saying) => self.say(saying),
            Action::SayOpenAgain => {
                tracing::info!(target: "keylane", source = %self.name, "the source is open again");
            }
            Action::ReportFailure(severity, why) => self.report_failure(severity, &why),
            Action::Notify(what) => self.port.notify(&self.name, what),
        }
    }

    /// Takes in what the source has handed over.
    pub(super) fn take_in(&mut self, now: Instant) {
        let mut taken = self.deliveries.take();
        let takes_in = !self.core.phase().stops();
        let mut refused = 0;
        for delivery in taken.drain(..) {
            let Some((slot, message)) = self.hold(delivery) else {
                continue;
            };
            let pushed = match takes_in {
                true => caught(|| self.inlet.push(message, Some(slot))),
                false => Ok(Err(message)),
            };
            match pushed {
                Ok(Ok(hash)) => self.core.set_hash(slot, hash),
                not_pushed => {
                    dropped(not_pushed);
                    refused += 1;
                    self.core.refused(slot, now);
                }
            }
        }
        let dead_lettered = self.deliveries.take_dead_lettered();
        self.core.took_in(refused, dead_lettered, now);
        // The same memory for the next ones.
        self.deliveries.reuse(taken);
    }

    #[inline]
    fn hold(&mut self, delivery: Delivery<M, P>) -> Option<(u32, M)> {
        let Delivery {
            message,
            position,
            generation,
            attempts,
            bytes,
            id,
            ..
        } = delivery;
        let guarded = self.guard.as_ref().map(|_| position.clone());
        let slot = self
            .core
            .received(position, generation, id, bytes, attempts)?;
        if let (Some(guard), Some(position)) = (&self.guard, guarded) {
            guard.set(slot, position);
        }
        if attempts > 0 && self.core.ledger.is_marked(slot) {
            self.port.set_attempts(slot, attempts);
        }
        Some((slot, message))
    }

    /// Takes in messages that were settled before they run. Returns how many of them cannot.
    pub(super) fn take_in_settled(&mut self, taken: &mut Vec<Delivery<M, P>>) -> usize {
        let mut refused = 0;
        for delivery in taken.drain(..) {
            let pushed = caught(|| self.inlet.push(delivery.message, None));
            if !matches!(pushed, Ok(Ok(_))) {
                dropped(pushed);
                refused += 1;
            }
        }
        refused
    }

    /// Places what there is room for. If the key's own code panics, it is not known what was
    /// placed, and all of it comes anew.
    pub(super) fn place(&mut self) {
        match caught(|| self.inlet.place()) {
            Ok(is_behind) => self.is_behind = is_behind,
            Err(text) => {
                let trouble = Trouble::Failed(panicked(&text));
                self.core.failed(&trouble, clock::now());
            }
        }
        for slot in self.inlet.aside.take_deferred() {
            self.core.ledger.set_bytes(slot, 0);
        }
    }

    /// The name of the source.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What the driver waits for.
    pub(super) fn waits(&mut self, now: Instant) -> Turn {
        let view = InletView {
            len: self.inlet.len(),
            deferred: self.inlet.aside.deferred(),
            is_closed: self.inlet.is_closed(),
        };
        self.core.waits(view, now)
    }

    /// Whether nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.core.is_over() && self.inlet.len() == 0 && self.deliveries.is_empty()
    }

    /// Settles messages that are in no lane.
    fn give_back(&mut self, mut slots: Vec<u32>, unplaced: Unplaced) {
        let core = &self.core;
        slots.extend(match unplaced {
            Unplaced::None => Vec::new(),
            Unplaced::Revoked => self.inlet.extract(|slot| core.goes_back(slot)),
            Unplaced::All => self.inlet.extract(|_| true),
        });
        if slots.is_empty() {
            return;
        }
        let settled = slots.into_iter().map(|slot| {
            let attempts = self.port.attempts(slot);
            let returned = Outcome::Returned { attempts };
            if let Some(guard) = &self.guard {
                guard.settles(slot, returned);
            }
            (slot, returned)
        });
        let mut settled = settled.collect();
        self.settle(&mut settled, clock::now());
    }

    /// Messages have settled.
    pub(super) fn settle(&mut self, settled: &mut Vec<(u32, Outcome)>, now: Instant) {
        let mut placed = Ok(());
        for (slot, outcome) in settled.iter_mut() {
            if self.core.ledger.is_marked(*slot) {
                *outcome = self.port.clear_slot(*slot, *outcome);
            }
            placed = placed.and(caught(|| self.inlet.settled(*slot)));
        }
        // As in `place`.
        let trouble = placed.err().map(|text| Trouble::Failed(panicked(&text)));
        self.core.settled(settled.drain(..), trouble, now);
    }

    fn publish(&self) {
        let aside = &self.inlet.aside;
        self.control.publish(|stats| {
            self.core.show(stats);
            (stats.aside, stats.deferred) = (aside.len(), aside.deferred());
        });
    }

    /// Publishes how many messages wait beside full lanes, if that has changed.
    pub(super) fn publish_aside(&mut self) {
        let aside = &self.inlet.aside;
        let aside = (aside.len(), aside.deferred());
        if std::mem::replace(&mut self.seen_aside, aside) != aside {
            self.publish();
        }
    }

    fn report_failure(&self, severity: Severity, why: &str) {
        let source = &self.name;
        match severity {
            Severity::Debug => {
                tracing::debug!(target: "keylane", %source, error = %why, "the source failed, will retry");
            }
            Severity::Warn => {
                tracing::warn!(target: "keylane", %source, error = %why, "the source failed, will retry");
            }
            Severity::Error => {
                tracing::error!(target: "keylane", %source, error = %why, "the source failed, will retry");
            }
        }
        let why = cut(why.to_owned(), LONGEST_WHY);
        self.control
            .publish(|stats| stats.last_error = Some(why.clone()));
        self.port.notify(&self.name, SourceEvent::Failed { why });
    }

    fn say(&self, saying: Saying) {
        let source = &self.name;
        match saying {
            Saying::Failed { part, why } => {
                tracing::warn!(
                    target: "keylane",
                    %source, %part, error = %why,
                    "a part of the source failed, will retry; the other parts continue"
                );
                let failed = SourceEvent::PartFailed { part, why };
                self.port.notify(source, failed);
            }
            Saying::Fails {
                part,
                why,
                lasted,
                times,
            } => {
                tracing::warn!(
                    target: "keylane",
                    %source, %part, error = %why, elapsed = ?lasted, failures = times,
                    "a part of the source is still failing, will retry"
                );
            }
            Saying::Recovered { part, lasted } => {
                tracing::info!(
                    target: "keylane",
                    %source, %part, elapsed = ?lasted,
                    "a part of the source works again"
                );
                let recovered = SourceEvent::PartRecovered { part, lasted };
                self.port.notify(source, recovered);
            }
        }
    }
}

impl<K, M, O, E, P> Machine<K, M, O, E, P> {
    /// The driver has ended: the report stands.
    pub(super) fn end(&self) {
        let ledger = &self.core.ledger;
        let panicked = self.port.has_panicked() || std::thread::panicking();
        let show = |stats: &mut IntakeStats| {
            ledger.show(stats);
            if panicked {
                stats.last_error = Some(PANICKED.to_owned());
            }
        };
        self.control.end(show, ledger.unconfirmed(), panicked);
    }
}

impl<K, M, O, E, P> Drop for Machine<K, M, O, E, P> {
    fn drop(&mut self) {
        // The runtime stops, or the task has panicked: otherwise it has ended before.
        self.end();
    }
}
