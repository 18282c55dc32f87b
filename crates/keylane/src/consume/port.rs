//! What the driver of a source needs of the engine.

use std::task::{Context, Poll};

use keylane_rt::Arc;
use keylane_source::Outcome;

use crate::engine::{
    Asked, Engine, GuardedStarts, News, Registration, Revoked, SlotGuard, SourceSlot,
};
use crate::error::ConsumeError;
use crate::types::{Spec, Types};
use crate::watching::SourceEvent;

/// The engine, as the driver of one source sees it: it knows messages by their slots.
pub(super) struct EnginePort<T: Types> {
    engine: Arc<Engine<T>>,
    registration: Registration,
    /// While it exists, the engine looks at jobs before they start.
    starts: Option<GuardedStarts>,
}

impl<T: Types> EnginePort<T> {
    /// A panic outside the handlers ends the dispatcher.
    pub(super) fn abort(&self) {
        self.engine.shutdown.abort_after_panic();
    }

    /// Whether a panic outside the handlers has ended the dispatcher.
    pub(super) fn has_panicked(&self) -> bool {
        self.engine.shutdown.has_panicked()
    }
}

impl<T: Spec> EnginePort<T> {
    /// `guard`: is told of attempts before they start.
    pub(super) fn new(
        engine: &Arc<Engine<T>>,
        name: &str,
        guard: Option<Arc<dyn SlotGuard>>,
        guards_starts: bool,
    ) -> Result<Self, ConsumeError> {
        let starts = guards_starts.then(|| engine.guard_starts());
        let registration = engine.sources.register(name, guard);
        Ok(Self {
            engine: Arc::clone(engine),
            registration: registration.ok_or(ConsumeError::Closed)?,
            starts,
        })
    }

    /// The number of the source.
    pub(super) fn source(&self) -> u32 {
        self.registration.source
    }

    fn at(&self, slot: u32) -> SourceSlot {
        let source = self.source();
        SourceSlot { source, slot }
    }

    /// Sets whether jobs are looked at before they start.
    #[inline]
    pub(super) fn guard_starts(&mut self, guards: bool) {
        match (guards, &self.starts) {
            (true, None) => self.starts = Some(self.engine.guard_starts()),
            (false, Some(_)) => self.starts = None,
            _ => {}
        }
    }

    /// Marks messages as taken back.
    pub(super) fn revoke(&self, slots: &[u32], how: Revoked) {
        self.engine.sources.revoke(self.source(), slots, how);
    }

    /// Hands back what is marked and has not started.
    pub(super) fn sweep(&self) {
        self.engine.sweep_revoked(self.source());
    }

    /// Sets how often a message was tried before it was handed over.
    pub(super) fn set_attempts(&self, slot: u32, attempts: u32) {
        self.engine.sources.set_attempts(self.at(slot), attempts);
    }

    /// How often a message was tried before it was handed over.
    pub(super) fn attempts(&self, slot: u32) -> u32 {
        self.engine.sources.before_start(self.at(slot)).0
    }

    /// The source keeps a dead letter of a message.
    pub(super) fn set_letter(&self, slot: u32) {
        self.engine.sources.set_letter(self.at(slot));
    }

    pub(super) fn has_letter(&self, slot: u32) -> bool {
        self.engine.sources.has_letter(self.at(slot))
    }

    /// Forgets what was known of a message that has settled. Returns what its source is told.
    pub(super) fn clear_slot(&self, slot: u32, outcome: Outcome) -> Outcome {
        self.engine.sources.clear_slot(self.at(slot), outcome)
    }

    /// Takes what has settled, if that is at least so much, letters, and lines of the log.
    pub(super) fn poll_news(
        &self,
        least: usize,
        news: &mut News,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let sources = &self.engine.sources;
        sources.poll_news(self.source(), least, news, cx)
    }

    /// Takes the questions that are to be answered.
    #[inline]
    pub(super) fn take_asked(&self) -> Asked {
        self.engine.sources.take_asked(self.source())
    }

    /// Waits for the end of the dispatcher.
    pub(super) async fn ended(&self) {
        self.engine.shutdown.ended().await;
    }

    pub(super) fn notify(&self, source: &str, what: SourceEvent) {
        self.engine.probe.notify_source(source, what);
    }
}
