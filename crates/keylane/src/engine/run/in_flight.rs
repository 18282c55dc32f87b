//! A job in flight: its handler runs.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};

use keylane_rt::Arc;
use keylane_rt::unwind::{caught, cloned};
use pin_project_lite::pin_project;

use super::attempt::{self, AttemptExtras};
use super::head::Head;
use super::kept::Kept;
use crate::engine::message::{Envelope, Job, Unsettled};
use crate::engine::settlement::{Outcome, Tally};
use crate::engine::{Engine, HandedBack};
use crate::error::Failure;
use crate::handler::Context;
use crate::observe::PollMark;
use crate::observe::facade::Stopwatch;
use crate::types::Spec;

/// A message in its handler, and its obligation.
///
/// Each handler in flight has one, so every byte counts. It therefore has no reference to the
/// engine. Its runner has one, and settles the message or hands it back.
pub(crate) struct InFlight<'a, T: Spec, K> {
    context: &'a Context<T::Key>,
    hash: u64,
    /// `None` once the message is settled, or moved on.
    envelope: Option<Envelope<T>>,
    kept: K,
    stopwatch: Stopwatch,
    /// What few attempts need. `None` without observers, time-outs and failures.
    watched: Option<Box<AttemptExtras<T::Error>>>,
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
    fn is_revoked(&self, engine: &Engine<T>, cx: &task::Context<'_>) -> bool {
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
    fn has_lost_lease(&self, engine: &Engine<T>, cx: &mut task::Context<'_>) -> bool {
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
    fn interrupt(&mut self, engine: &Arc<Engine<T>>) {
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

pin_project! {
    /// One run of the handler for a message in flight.
    pub(super) struct Attempt<'a, T, K, F>
    where
        T: Spec,
    {
        #[pin]
        future: Option<F>,
        in_flight: InFlight<'a, T, K>,
    }
}

impl<'a, T: Spec, K: Kept<T>, F> Attempt<'a, T, K, F> {
    #[inline]
    pub(super) fn new(in_flight: InFlight<'a, T, K>) -> Self {
        Self {
            future: None,
            in_flight,
        }
    }

    /// Calls the handler, and puts its future where it stays.
    ///
    /// Takes its argument by value: a borrowed pointer would take memory until the end of its
    /// scope.
    #[inline]
    pub(super) fn call<I>(
        mut self: Pin<&mut Self>,
        engine: &Engine<T>,
        input: Result<I, Failure<T::Error>>,
        handle: impl FnOnce(&'a Context<T::Key>, I) -> F,
    ) -> Pin<&mut Self> {
        let mut this = self.as_mut().project();
        let context = this.in_flight.context;
        let called = input.and_then(|input| {
            // A closure may block before it returns its future.
            let _mark = PollMark::start(engine.id(), this.in_flight.hash);
            caught(|| handle(context, input)).map_err(Failure::Panicked)
        });
        match called {
            Ok(future) => this.future.set(Some(future)),
            Err(failure) => AttemptExtras::of(&mut this.in_flight.watched).failed = Some(failure),
        }
        self
    }

    /// Polls the handler, and then its deadline. Drops the future once it is ready.
    ///
    /// The lease of its key is looked at right before the handler is called, and here before each
    /// poll but the first.
    #[inline]
    pub(super) fn poll<A, X>(
        self: Pin<&mut Self>,
        engine: &Arc<Engine<T>>,
        is_first: bool,
        cx: &mut task::Context<'_>,
    ) -> Poll<Result<A, Box<Failure<T::Error>>>>
    where
        F: Future<Output = Result<A, X>>,
        X: Into<Failure<T::Error>>,
    {
        let mut this = self.project();
        let in_flight = this.in_flight;
        let answer = match AttemptExtras::failed(&mut in_flight.watched) {
            Some(failure) => Err(Box::new(failure)),
            None if !is_first && in_flight.has_lost_lease(engine, cx) => {
                Err(Box::new(Failure::LeaseLost))
            }
            None => {
                let watched = &mut in_flight.watched;
                let future = this.future.as_mut();
                match attempt::poll(future, cx, watched, engine.id(), in_flight.hash) {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => {
                        let limit = engine.settings.attempt_timeout;
                        let late = attempt::poll_deadline(in_flight.context, watched, limit, cx);
                        match late {
                            Poll::Ready(late) => Err(Box::new(late)),
                            Poll::Pending if in_flight.is_revoked(engine, cx) => {
                                Err(Box::new(Failure::Revoked))
                            }
                            Poll::Pending if is_first && in_flight.has_lost_lease(engine, cx) => {
                                Err(Box::new(Failure::LeaseLost))
                            }
                            Poll::Pending => return Poll::Pending,
                        }
                    }
                }
            }
        };
        // The future is dropped before the key moves on, whatever its drop does.
        engine.probe.drop_future(|| this.future.set(None));
        Poll::Ready(answer)
    }

    /// Lends the job in flight, once the handler has returned.
    #[inline]
    pub(super) fn in_flight<'b>(self: Pin<&'b mut Self>) -> &'b mut InFlight<'a, T, K> {
        self.project().in_flight
    }

    /// Whether the obligation is gone.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.in_flight.envelope.is_none()
    }

    /// Drops a running handler, and then hands its message back. In this order, so that the key
    /// moves on after the future is gone.
    #[cold]
    pub(super) fn interrupt(self: Pin<&mut Self>, engine: &Arc<Engine<T>>) {
        let mut this = self.project();
        engine.probe.drop_future(|| this.future.set(None));
        this.in_flight.interrupt(engine);
    }

    /// The key, hash, attempt and acceptance of the message.
    #[inline]
    pub(super) fn head(&self) -> Head<'_, T::Key> {
        let InFlight {
            context,
            hash,
            envelope,
            ..
        } = &self.in_flight;
        Head {
            key: context.key.as_ref(),
            hash: *hash,
            attempt: context.attempt,
            accepted_at: envelope.as_ref().map_or(0, |envelope| envelope.accepted_at),
        }
    }
}
