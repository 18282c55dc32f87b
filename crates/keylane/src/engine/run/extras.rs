//! What few attempts need: a span, a measurement, a time-out.

use std::task::{self, Poll};

use keylane_rt::Arc;
use keylane_rt::clock::{self, Alarm, Instant};

use crate::adaptive::Started;
use crate::engine::Engine;
use crate::error::Failure;
use crate::handler::Context;
use crate::observe::trace;
use crate::types::Spec;

/// What few attempts need. Behind one pointer, which is null for the others, because every job in
/// flight has one.
#[derive(Debug)]
pub(super) struct AttemptExtras<E> {
    pub(super) span: Option<tracing::Span>,
    /// The measurement, where the concurrency is adaptive.
    started: Option<Started>,
    /// When it began, where times are measured.
    began: Option<Instant>,
    /// The timer, set once a handler with a time-out has returned `Pending`.
    alarm: Option<Alarm>,
    /// Why there is no future to poll.
    pub(super) failed: Option<Failure<E>>,
}

impl<E> AttemptExtras<E> {
    /// The extras of this attempt, made if there are none yet.
    #[cold]
    pub(super) fn of(watched: &mut Option<Box<Self>>) -> &mut Self {
        watched.get_or_insert_with(|| {
            Box::new(Self {
                span: None,
                started: None,
                began: None,
                alarm: None,
                failed: None,
            })
        })
    }

    /// Why there is no future to poll, if there is none.
    #[inline]
    pub(super) fn failed(watched: &mut Option<Box<Self>>) -> Option<Failure<E>> {
        watched.as_mut()?.failed.take()
    }
}

impl<T: Spec> Engine<T> {
    /// Starts to observe an attempt.
    #[cold]
    pub(super) fn watch(
        &self,
        context: &Context<T::Key>,
        hash: u64,
        accepted_at: u64,
    ) -> Option<Box<AttemptExtras<T::Error>>> {
        let span = trace::span(|| {
            let wait = self.clocks.waited(accepted_at, clock::now());
            (
                self.probe.shown(context.key.as_ref(), hash),
                context.attempt,
                wait,
            )
        });
        let started = self
            .probe
            .meter
            .as_ref()
            .map(|meter| meter.start(clock::now()));
        let began = self.measure_start(context.attempt, accepted_at);
        (span.is_some() || started.is_some() || began.is_some()).then(|| {
            Box::new(AttemptExtras {
                span,
                started,
                began,
                alarm: None,
                failed: None,
            })
        })
    }

    /// Measures the wait of a message, if it is one of those that are measured. Returns when its
    /// attempt has begun.
    fn measure_start(&self, attempt: u32, accepted_at: u64) -> Option<Instant> {
        let times = &self.probe.times;
        times.measures(accepted_at).then(|| {
            let now = clock::now();
            if attempt == 1 {
                times.waited(self.clocks.waited(accepted_at, now));
            }
            now
        })
    }

    /// Records the end of an attempt. Its future has been dropped.
    #[cold]
    pub(super) fn end_watch<A>(
        self: &Arc<Self>,
        watched: AttemptExtras<T::Error>,
        answer: &Result<A, Box<Failure<T::Error>>>,
    ) {
        let AttemptExtras {
            span,
            started,
            began,
            ..
        } = watched;
        drop(span);
        if let Some(began) = began {
            self.probe.times.attempted(began);
        }
        if let Some(started) = started {
            self.measure(&started, answer);
        }
    }
}

/// Ready when the deadline of this attempt has passed.
///
/// The timer is set once the handler returns `Pending`: a handler that is ready at once needs none.
#[inline]
pub(super) fn poll_deadline<K, E>(
    context: &Context<K>,
    watched: &mut Option<Box<AttemptExtras<E>>>,
    timeout: Option<std::time::Duration>,
    cx: &mut task::Context<'_>,
) -> Poll<Failure<E>> {
    let Some(timeout) = timeout else {
        return Poll::Pending;
    };
    let Some(deadline) = context.instant_of_deadline() else {
        return Poll::Pending;
    };
    let alarm = &mut AttemptExtras::of(watched).alarm;
    let alarm = alarm.get_or_insert_with(|| Alarm::new(deadline));
    alarm.poll(cx).map(|()| Failure::TimedOut(timeout))
}
