//! One run of a handler, with everything a user's future can do wrong.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};

use super::Engine;
use crate::adaptive::Started;
use crate::clock::{self, Alarm};
use crate::error::Failure;
use crate::handler::Context;
use crate::observe::PollMark;
use crate::observe::facade::Stopwatch;
use crate::observe::trace;
use crate::types::Spec;
use crate::unwind::caught;

/// What observes one attempt. Without a subscriber and without metrics it is a null pointer.
#[derive(Debug)]
pub(super) struct Watched {
    span: Option<Box<tracing::Span>>,
    stopwatch: Stopwatch,
    /// Where the concurrency is adaptive.
    pub(super) started: Option<Started>,
}

impl Watched {
    /// The attempt is over.
    #[inline]
    pub(super) fn end<T: Spec>(&mut self, engine: &Engine<T>) {
        self.stopwatch.stop(&engine.probe.facade);
        if let Some(span) = self.span.take() {
            drop_span(span);
        }
    }
}

/// Out of the way of those without a subscriber.
#[cold]
fn drop_span(span: Box<tracing::Span>) {
    drop(span);
}

impl<T: Spec> Engine<T> {
    /// Prepares the context of an attempt. Reads the clock only where somebody wants to know.
    #[inline]
    pub(super) fn start(
        &self,
        context: &mut Context<T::Key>,
        hash: u64,
        attempt: u32,
        parked_at: u64,
    ) -> Watched {
        context.attempt = attempt;
        if let Some(timeout) = self.settings.attempt_timeout {
            context.deadline = clock::now().checked_add(timeout);
        }
        let stopwatch = Stopwatch::start(|now| self.waited(parked_at, now));
        let span = trace::span(|| {
            let wait = self.waited(parked_at, clock::now());
            (self.shown(context.key.as_ref(), hash), attempt, wait)
        });
        let started = self
            .probe
            .meter
            .as_ref()
            .map(|meter| meter.start(clock::now()));
        Watched {
            span,
            stopwatch,
            started,
        }
    }

    /// The message for the handler, and the one that is kept for another attempt or a letter.
    #[inline]
    pub(super) fn keep(
        &self,
        message: T::Message,
    ) -> (Result<T::Message, Failure<T::Error>>, Option<T::Message>) {
        match self.settings.keep {
            None => (Ok(message), None),
            Some(keep) => {
                let copy = caught(|| keep(&message)).map_err(Failure::Panicked);
                (copy, Some(message))
            }
        }
    }

    /// Drops a future of the user's.
    #[inline]
    pub(super) fn drop_future(&self, drop: impl FnOnce()) {
        if let Err(text) = caught(drop) {
            self.probe.counters.panics.add(1);
            tracing::error!(target: "keylane", panic = %text, "the drop of a future panicked");
        }
    }
}

/// Polls a handler's future once. A panic becomes a failure.
#[inline]
pub(super) fn poll<F, O, X, E>(
    slot: Pin<&mut Option<F>>,
    cx: &mut task::Context<'_>,
    watched: &Watched,
    engine: usize,
    hash: u64,
) -> Poll<Result<O, Box<Failure<E>>>>
where
    F: Future<Output = Result<O, X>>,
    X: Into<Failure<E>>,
{
    let future = slot
        .as_pin_mut()
        .expect("an attempt is polled until it is ready");
    let _entered = watched.span.as_ref().map(|span| span.enter());
    let _mark = PollMark::start(engine, hash);
    match caught(|| future.poll(cx)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(Ok(answer))) => Poll::Ready(Ok(answer)),
        Ok(Poll::Ready(Err(error))) => Poll::Ready(Err(Box::new(error.into()))),
        Err(text) => Poll::Ready(Err(Box::new(Failure::Panicked(text)))),
    }
}

/// Polls the delivery of a letter once. A panic of the sink is a refusal.
pub(super) fn poll_delivery<F>(
    slot: Pin<&mut Option<F>>,
    cx: &mut task::Context<'_>,
) -> Poll<Result<(), String>>
where
    F: Future<Output = Result<(), String>>,
{
    let future = slot
        .as_pin_mut()
        .expect("a delivery is polled until it is ready");
    caught(|| future.poll(cx)).unwrap_or_else(|text| Poll::Ready(Err(text)))
}

/// Ready when the deadline of this attempt has passed.
///
/// The alarm is set only once the handler waits: one that is ready at once needs none.
#[inline]
pub(super) fn poll_deadline<K, E>(
    context: &Context<K>,
    alarm: &mut Option<Alarm>,
    timeout: Option<std::time::Duration>,
    cx: &mut task::Context<'_>,
) -> Poll<Failure<E>> {
    let (Some(deadline), Some(timeout)) = (context.deadline, timeout) else {
        return Poll::Pending;
    };
    let alarm = alarm.get_or_insert_with(|| Alarm::new(deadline));
    alarm.poll(cx).map(|()| Failure::TimedOut(timeout))
}
