//! When a message may start.

use std::time::Duration;

use keylane_rt::clock::Instant;

/// The earliest time at which a message may start: after a wait, or at a point in time.
///
/// It is made from a [`Duration`] or a [`tokio::time::Instant`], which
/// [`send_when`](crate::Dispatcher::send_when) and similar functions take. Both are measured by the
/// clock of the runtime on which the dispatcher was started, so a test that pauses that clock
/// pauses delays too. A `Duration` counts from the call, or from the first poll of an `async` one;
/// the wait of the message for room is part of it. An `Instant` that has passed is no delay.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use keylane::Dispatcher;
/// use tokio::time::Instant;
///
/// # let mails = Dispatcher::builder(|mail: &u64| mail % 10)
/// #     .spawn(|_: u64| async move { Ok::<(), std::io::Error>(()) })?;
/// mails.send_when(1, Duration::from_secs(60)).await?;
/// let tomorrow = Instant::now() + Duration::from_secs(24 * 3600);
/// mails.send_when(2, tomorrow).await?;
/// # mails.drain().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When(Moment);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    After(Duration),
    At(Instant),
}

impl When {
    /// The time, for a call that was made at `now`. `None`: the clock cannot count so far.
    pub(super) fn counted_from(self, now: impl FnOnce() -> Instant) -> Option<Instant> {
        match self.0 {
            Moment::After(wait) => now().checked_add(wait),
            Moment::At(at) => Some(at),
        }
    }
}

impl From<Duration> for When {
    fn from(wait: Duration) -> Self {
        Self(Moment::After(wait))
    }
}

impl From<tokio::time::Instant> for When {
    fn from(at: tokio::time::Instant) -> Self {
        Self(Moment::At(at.into_std()))
    }
}
