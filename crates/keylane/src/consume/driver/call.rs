//! Calls of the source, which may panic, fail or never return.

use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use keylane_rt::clock::{self, Alarm, Instant};
use keylane_source::SourceError;

/// Longer than any wait whose end matters.
pub(super) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why a source is opened again.
pub(super) enum Trouble {
    Failed(SourceError),
    /// A call has not returned in this time.
    Late(Duration),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Late(_) => f.write_str("a call to the source did not return in time"),
        }
    }
}

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

pub(super) fn panicked(text: String) -> String {
    format!("it panicked: {text}")
}

/// A time that is later, and exists.
pub(super) fn later(from: Instant, by: Duration) -> Instant {
    from.checked_add(by.min(FAR)).unwrap_or(from)
}
