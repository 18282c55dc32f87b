//! One poll of a handler: all that the user's future can do wrong is caught here.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{self, Poll};

use keylane_rt::Arc;
use keylane_rt::unwind::caught;
use pin_project_lite::pin_project;

use super::extras::{AttemptExtras, poll_deadline};
use super::head::Head;
use super::in_flight::InFlight;
use super::invoke::Invoke;
use super::kept::Kept;
use super::runner::Runner;
use crate::engine::Engine;
use crate::error::Failure;
use crate::handler::Context;
use crate::observe::PollMark;
use crate::types::Spec;

/// A runner and its job in flight.
///
/// Pending until the handler has returned and a success has been settled. The first `Pending` makes
/// the runner a holder. If this is dropped before, because the task is aborted or its runtime ends,
/// the message is handed back.
pub(super) struct Handling<'s, 'a, T: Spec, I: Invoke<T>, F> {
    attempt: Pin<&'s mut Attempt<'a, T, I::Kept, F>>,
    runner: &'s mut Runner<T>,
    invoke: PhantomData<fn() -> I>,
}

impl<'s, 'a, T: Spec, I: Invoke<T>, F> Handling<'s, 'a, T, I, F> {
    #[inline]
    pub(super) fn new(
        attempt: Pin<&'s mut Attempt<'a, T, I::Kept, F>>,
        runner: &'s mut Runner<T>,
    ) -> Self {
        Self {
            attempt,
            runner,
            invoke: PhantomData,
        }
    }
}

impl<T, I, F, X> Future for Handling<'_, '_, T, I, F>
where
    T: Spec,
    I: Invoke<T>,
    F: Future<Output = Result<I::Answer, X>>,
    X: Into<Failure<T::Error>>,
{
    type Output = I::Finished;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<I::Finished> {
        let Self {
            attempt, runner, ..
        } = &mut *self;
        let is_first = !runner.holds();
        match attempt.as_mut().poll(runner.engine(), is_first, cx) {
            Poll::Pending => {
                runner.hold(attempt.head());
                Poll::Pending
            }
            Poll::Ready(answer) => {
                let (engine, tally) = runner.settling();
                let in_flight = attempt.as_mut().in_flight();
                Poll::Ready(I::finish(engine, tally, in_flight, answer))
            }
        }
    }
}

impl<T: Spec, I: Invoke<T>, F> Drop for Handling<'_, '_, T, I, F> {
    #[inline]
    fn drop(&mut self) {
        if !self.attempt.is_over() {
            self.attempt.as_mut().interrupt(self.runner.engine());
        }
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
            let _mark = this.in_flight.mark(engine.id());
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
                let future = this.future.as_mut();
                let mark = || in_flight.mark(engine.id());
                let polled = poll_once(future, cx, &in_flight.watched, mark);
                let watched = &mut in_flight.watched;
                match polled {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => {
                        let limit = engine.settings.attempt_timeout;
                        let late = poll_deadline(in_flight.context, watched, limit, cx);
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

/// Polls a handler's future once. A panic becomes a failure.
#[inline]
fn poll_once<F, O, X, E>(
    future: Pin<&mut Option<F>>,
    cx: &mut task::Context<'_>,
    watched: &Option<Box<AttemptExtras<E>>>,
    mark: impl FnOnce() -> PollMark,
) -> Poll<Result<O, Box<Failure<E>>>>
where
    F: Future<Output = Result<O, X>>,
    X: Into<Failure<E>>,
{
    let future = future
        .as_pin_mut()
        .expect("an attempt is polled until it is ready");
    let span = watched.as_ref().and_then(|watched| watched.span.as_ref());
    let _entered = span.map(|span| span.enter());
    let _mark = mark();
    match caught(|| future.poll(cx)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(Ok(answer))) => Poll::Ready(Ok(answer)),
        Ok(Poll::Ready(Err(error))) => Poll::Ready(Err(Box::new(error.into()))),
        Err(text) => Poll::Ready(Err(Box::new(Failure::Panicked(text)))),
    }
}
