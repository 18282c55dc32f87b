//! Calls of the source, which may panic, fail or never return.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use keylane_rt::clock::{self, Alarm};
use keylane_source::SourceError;

use super::core::{FAR, Trouble, later};

/// Calls the source. A panic counts as a failure, and so does a call that takes too long.
pub(super) async fn call<R>(
    limit: Duration,
    call: impl Future<Output = Result<R, SourceError>>,
) -> Result<R, Trouble> {
    // Most calls are ready at once, and need none.
    let mut alarm = None;
    let mut call = pin!(AssertUnwindSafe(call).catch_unwind());
    poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(Ok(answer)) => Poll::Ready(answer.map_err(Trouble::Failed)),
        Poll::Ready(Err(_)) => {
            let error = SourceError::failed("a call panicked");
            Poll::Ready(Err(Trouble::Failed(error)))
        }
        Poll::Pending => {
            let Some(alarm) = alarm.get_or_insert_with(|| alarm_after(limit)) else {
                return Poll::Pending;
            };
            let late = alarm.poll(cx);
            late.map(|()| Err(Trouble::Late(limit)))
        }
    })
    .await
}

/// An alarm for the end of a call, unless it may take for ever.
pub(super) fn alarm_after(limit: Duration) -> Option<Alarm> {
    (limit < FAR).then(|| Alarm::new(later(clock::now(), limit)))
}
