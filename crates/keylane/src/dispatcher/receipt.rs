//! The answer to a submitted message.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use keylane_rt::oneshot;

use crate::error::ReceiptError;
use crate::observe::is_polled;

/// A future that resolves when the message has settled, with the handler's answer or the reason why
/// there is none.
///
/// Dropping it changes nothing for the message; the answer is dropped. If the message is handed
/// back, it then comes with the [`Report`](crate::Report).
///
/// # Cancel safety
///
/// A receipt may be polled, left, and polled again, for example in `select!` by reference.
///
/// # Deadlocks
///
/// A handler that awaits the receipt of a message of its own key waits for itself: that message
/// starts when the handler has ended. The log says so, with a warning. Send the message without a
/// receipt, or await the receipt in another task.
///
/// # Panics
///
/// Panics if it is polled after it has resolved.
#[must_use = "a receipt resolves with the handler's answer; use `send` without one"]
pub struct Receipt<M, O, E> {
    pub(super) answer: Answer<M, O, E>,
    /// The id of the engine.
    pub(super) engine: usize,
    /// The hash of the key. 0: the message may settle before the one that is with its handler.
    pub(super) behind: u64,
}

pub(super) type Answer<M, O, E> = oneshot::Receiver<Result<O, ReceiptError<M, E>>>;

impl<M, O, E> Future for Receipt<M, O, E> {
    type Output = Result<O, ReceiptError<M, E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.answer).poll(cx);
        if polled.is_pending() && is_polled(self.engine, self.behind) {
            warn_of_deadlock(self.engine);
        }
        polled.map(|answer| match answer {
            Ok(answer) => answer,
            Err(_) => Err(ReceiptError::Stopped),
        })
    }
}

/// Warns once, and then rarely: each time that twice as many receipts were polled so. Not again for
/// the dispatcher of the last time.
#[cold]
fn warn_of_deadlock(engine: usize) {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    static TIMES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: nothing is published by them.
    if LAST.swap(engine, Ordering::Relaxed) == engine {
        return;
    }
    if (TIMES.fetch_add(1, Ordering::Relaxed) + 1).is_power_of_two() {
        tracing::warn!(
            target: "keylane",
            "a handler awaits the receipt of a message of its own key, which starts only when the \
             handler has ended; send it without a receipt, or await the receipt in another task"
        );
    }
}

impl<M, O, E> fmt::Debug for Receipt<M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").finish_non_exhaustive()
    }
}
