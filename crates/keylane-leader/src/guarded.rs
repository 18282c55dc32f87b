//! A phase of the career: the user's future, whose panics end the phase and nothing else.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::machine::Outcome;

/// Runs a future of the user's. Also its destructor may panic, and so may the text of its error:
/// the candidate goes on, because without it `hand_over` would not be called.
pub(crate) struct Guarded<F>(Option<Pin<Box<F>>>);

impl<F> Guarded<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Some(Box::pin(future)))
    }

    fn end(&mut self) {
        let future = self.0.take();
        if let Err(panic) = caught(move || drop(future)) {
            tracing::warn!(%panic, "a destructor of the career has panicked");
        }
    }
}

impl<F, E> Future for Guarded<F>
where
    F: Future<Output = Result<(), E>>,
    E: fmt::Display,
{
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Some(future) = self.0.as_mut() else {
            return Poll::Pending;
        };
        let outcome = match caught(|| future.as_mut().poll(cx).map(outcome_of)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => outcome,
            Err(message) => Outcome::Panicked(message),
        };
        self.end();
        Poll::Ready(outcome)
    }
}

impl<F> Drop for Guarded<F> {
    fn drop(&mut self) {
        self.end();
    }
}

fn outcome_of<E: fmt::Display>(result: Result<(), E>) -> Outcome {
    match result {
        Ok(()) => Outcome::Ok,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// Runs code of the user's. Returns a panic as its text.
fn caught<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let message = message_of(&*panic);
        // The payload is the user's, too.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(panic))).map_err(std::mem::forget);
        message
    })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it has no message").to_owned()
}
