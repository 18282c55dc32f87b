//! A job in flight: its handler runs.

use std::task::{self};

use keylane_rt::Arc;
use keylane_rt::clock;
use keylane_rt::unwind::cloned;

use super::extras::AttemptExtras;
use super::kept::Kept;
use crate::engine::message::{Envelope, Job, Unsettled};
use crate::engine::settlement::{Outcome, Tally};
use crate::engine::sources::SourceSlot;
use crate::engine::{Engine, HandedBack};
use crate::error::Failure;
use crate::handler::Context;
use crate::observe::PollMark;
use crate::observe::facade::Stopwatch;
use crate::observe::trace;
use crate::types::Spec;

/// A message in its handler, and its obligation.
///
/// Each handler in flight has one, so every byte counts. It therefore has no reference to the
/// engine. Its runner has one, and settles the message or hands it back.
pub(crate) struct InFlight<'a, T: Spec, K> {
    pub(super) context: &'a Context<T::Key>,
    pub(super) hash: u64,
    /// `None` once the message is settled, or moved on.
    pub(super) envelope: Option<Envelope<T>>,
    pub(super) kept: K,
    pub(super) stopwatch: Stopwatch,
    /// What few attempts need. `None` without observers, time-outs and failures.
    pub(super) watched: Option<Box<AttemptExtras<T::Error>>>,
}

impl<'a, T: Spec, K: Kept<T>> InFlight<'a, T, K> {
    /// Splits a job into the input of its handler and its obligation. `keep` splits its message.
    #[inline]
    pub(super) fn take<I, F>(
        engine: &Arc<Engine<T>>,
        context: &'a mut Context<T::Key>,
        job: Job<T>,
        keep: F,
    ) -> (Result<I, Failure<T::Error>>, Self)
    where
        F: FnOnce(&Engine<T>, &mut Envelope<T>, T::Message) -> (Result<I, Failure<T::Error>>, K),
    {
        let attempt = job.attempt();
        let Job {
            key,
            hash,
            message,
            envelope,
            work: _,
        } = job;
        let mut envelope = envelope.into_running();
        context.key = key;
        if engine.table.has_discipline {
            context.set_version(envelope.obligation.version());
        }
        let (stopwatch, watched) = engine.start(context, hash, attempt, envelope.accepted_at);
        let (input, kept) = keep(engine, &mut envelope, message);
        let in_flight = Self {
            context,
            hash,
            envelope: Some(envelope),
            kept,
            stopwatch,
            watched,
        };
        (input, in_flight)
    }

    /// Marks that this thread is in its handler, until the mark is dropped.
    #[inline]
    pub(super) fn mark(&self, engine: usize) -> PollMark {
        let envelope = self.envelope.as_ref();
        let source = envelope.and_then(|envelope| envelope.obligation.source());
        PollMark::start(engine, self.hash, SourceSlot::pack(source))
    }

    /// Ends the observation of an attempt whose handler has returned.
    #[inline]
    pub(super) fn answered<A>(
        &mut self,
        engine: &Arc<Engine<T>>,
        answer: &Result<A, Box<Failure<T::Error>>>,
    ) {
        self.stopwatch.stop(&engine.probe.facade);
        if let Some(watched) = self.watched.take() {
            engine.end_watch(*watched, answer);
        }
    }

    /// Settles a message whose handler has succeeded. In place, because moving an envelope costs
    /// more.
    #[inline]
    pub(super) fn settle(&mut self, engine: &Arc<Engine<T>>, tally: &mut Tally, answer: T::Output) {
        if let Some(envelope) = &mut self.envelope {
            if engine.decisions.store_requests.is_some() {
                let version = envelope.obligation.version();
                engine
                    .table
                    .note_recorded(self.context.key.as_ref(), self.hash, version);
            }
            engine
                .settlement
                .settle_in_place(tally, envelope, Outcome::Done(answer));
        }
        self.envelope = None;
        if std::mem::needs_drop::<T::Message>()
            && let Some(kept) = self.kept.take()
        {
            engine.probe.drop_quietly(kept);
        }
    }

    /// Moves the obligation out: the message is settled, tried again or given up on.
    pub(super) fn take_unsettled(&mut self) -> Unsettled<T> {
        Unsettled {
            hash: self.hash,
            envelope: self.envelope.take().expect("it is in flight until now"),
            kept: self.kept.take(),
        }
    }

    /// Whether a source has taken a message of this attempt back, and its time to end is over. If
    /// not, the source wakes this task then.
    #[inline]
    pub(super) fn is_revoked(&self, engine: &Engine<T>, cx: &task::Context<'_>) -> bool {
        engine.sources.has_any() && self.watch_sources(engine, cx)
    }

    #[cold]
    fn watch_sources(&self, engine: &Engine<T>, cx: &task::Context<'_>) -> bool {
        let first = self.envelope.iter().map(|envelope| &envelope.obligation);
        let mut ends = false;
        for obligation in first.chain(self.kept.members()) {
            ends |= engine.sources.watch(obligation, cx);
        }
        ends
    }

    /// Whether the lease of its key is lost. If not, this task is woken then.
    #[inline]
    pub(super) fn has_lost_lease(&self, engine: &Engine<T>, cx: &mut task::Context<'_>) -> bool {
        engine
            .starts
            .has_lost_lease(self.context.key.as_ref(), self.hash, cx)
    }

    #[inline]
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn kept(&mut self) -> &mut K {
        &mut self.kept
    }

    /// The handler was dropped before it had returned.
    pub(super) fn interrupt(&mut self, engine: &Arc<Engine<T>>) {
        let Some(envelope) = self.envelope.take() else {
            return;
        };
        let Context { key, attempt, .. } = self.context;
        // This may run while a panic unwinds.
        let key = key.as_ref().and_then(cloned);
        let back = HandedBack {
            key: key.as_ref().and_then(cloned),
            message: self.kept.take(),
            attempts: *attempt,
            interrupted: true,
        };
        engine.interrupted(key, self.hash, envelope, back, attempt.saturating_sub(1));
        self.kept.interrupt(engine, self.context.key.as_ref());
    }
}

impl<T: Spec> Engine<T> {
    /// Prepares the context of an attempt. Reads the clock only where the time is used.
    #[inline]
    fn start(
        &self,
        context: &mut Context<T::Key>,
        hash: u64,
        attempt: u32,
        accepted_at: u64,
    ) -> (Stopwatch, Option<Box<AttemptExtras<T::Error>>>) {
        context.attempt = attempt;
        if let Some(timeout) = self.settings.attempt_timeout {
            context.set_deadline(clock::now().checked_add(timeout));
        }
        let stopwatch = Stopwatch::start(|now| self.clocks.waited(accepted_at, now));
        let is_measured = self.probe.times.measures(accepted_at);
        let watched = if is_measured || self.probe.meter.is_some() || trace::is_enabled() {
            self.watch(context, hash, accepted_at)
        } else {
            None
        };
        (stopwatch, watched)
    }
}
