//! The answer to a submitted message.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use keylane_rt::oneshot;

use crate::error::ReceiptError;

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
/// # Panics
///
/// Panics if it is polled after it has resolved.
#[must_use = "a receipt resolves with the handler's answer; use `send` without one"]
pub struct Receipt<M, O, E> {
    pub(super) answer: oneshot::Receiver<Result<O, ReceiptError<M, E>>>,
}

impl<M, O, E> Future for Receipt<M, O, E> {
    type Output = Result<O, ReceiptError<M, E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer)
            .poll(cx)
            .map(|answer| match answer {
                Ok(answer) => answer,
                Err(_) => Err(ReceiptError::Stopped),
            })
    }
}

impl<M, O, E> fmt::Debug for Receipt<M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").finish_non_exhaustive()
    }
}
