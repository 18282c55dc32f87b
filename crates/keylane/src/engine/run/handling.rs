//! The future of a runner that waits for a handler.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::in_flight::Attempt;
use super::invoke::Invoke;
use super::slot::RunnerSlot;
use crate::error::Failure;
use crate::types::Spec;

/// A runner and its job in flight.
///
/// Pending until the handler has returned and a success has been settled. The first `Pending` makes
/// the runner a holder. If this is dropped before, because the task is aborted or its runtime ends,
/// the message is handed back.
pub(super) struct Handling<'s, 'a, T: Spec, I: Invoke<T>, F> {
    attempt: Pin<&'s mut Attempt<'a, T, I::Kept, F>>,
    slot: &'s mut RunnerSlot<T>,
    invoke: PhantomData<fn() -> I>,
}

impl<'s, 'a, T: Spec, I: Invoke<T>, F> Handling<'s, 'a, T, I, F> {
    #[inline]
    pub(super) fn new(
        attempt: Pin<&'s mut Attempt<'a, T, I::Kept, F>>,
        slot: &'s mut RunnerSlot<T>,
    ) -> Self {
        Self {
            attempt,
            slot,
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
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<I::Finished> {
        let Self { attempt, slot, .. } = &mut *self;
        let is_first = !slot.holds();
        match attempt.as_mut().poll(slot.engine(), is_first, cx) {
            Poll::Pending => {
                slot.hold(attempt.head());
                Poll::Pending
            }
            Poll::Ready(answer) => {
                let (engine, tally) = slot.settling();
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
            self.attempt.as_mut().interrupt(self.slot.engine());
        }
    }
}
