//! The future of a runner that waits for a handler.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::in_flight::Attempt;
use super::slot::RunnerSlot;
use super::work::Work;
use crate::error::Failure;
use crate::types::Spec;

/// A runner and its job in flight.
///
/// Pending until the handler has returned and a success has been settled. The first `Pending` makes
/// the runner a holder. If this is dropped before, because the task is aborted or its runtime ends,
/// the message is handed back.
pub(super) struct Handling<'s, 'a, T: Spec, W: Work<T>, F> {
    attempt: Pin<&'s mut Attempt<'a, T, W::Kept, F>>,
    slot: &'s mut RunnerSlot<T>,
    work: PhantomData<fn() -> W>,
}

impl<'s, 'a, T: Spec, W: Work<T>, F> Handling<'s, 'a, T, W, F> {
    #[inline]
    pub(super) fn new(
        attempt: Pin<&'s mut Attempt<'a, T, W::Kept, F>>,
        slot: &'s mut RunnerSlot<T>,
    ) -> Self {
        Self {
            attempt,
            slot,
            work: PhantomData,
        }
    }
}

impl<T, W, F, X> Future for Handling<'_, '_, T, W, F>
where
    T: Spec,
    W: Work<T>,
    F: Future<Output = Result<W::Answer, X>>,
    X: Into<Failure<T::Error>>,
{
    type Output = W::Finished;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<W::Finished> {
        let Self { attempt, slot, .. } = &mut *self;
        match attempt.as_mut().poll(slot.engine(), cx) {
            Poll::Pending => {
                slot.hold(attempt.head());
                Poll::Pending
            }
            Poll::Ready(answer) => {
                let (engine, tally) = slot.settling();
                let in_flight = attempt.as_mut().in_flight();
                Poll::Ready(W::finish(engine, tally, in_flight, answer))
            }
        }
    }
}

impl<T: Spec, W: Work<T>, F> Drop for Handling<'_, '_, T, W, F> {
    #[inline]
    fn drop(&mut self) {
        if !self.attempt.is_over() {
            self.attempt.as_mut().interrupt(self.slot.engine());
        }
    }
}
