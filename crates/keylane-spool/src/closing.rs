//! The end of a spool.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use super::core::Stage;
use super::handle::Spool;
use super::report::SpoolReport;

/// An end that starts when it is awaited: [`Spool::close`](super::Spool::close).
///
/// It delivers the accepted messages, without waiting for batches to fill. Halted keys cannot
/// finish, and their messages are left. Without a deadline ([`within`](Self::within)) it waits as
/// long as the sink takes, or fails.
///
/// With a directory, undelivered messages are stored, under every policy, and the next
/// [`open`](super::SpoolBuilder::open) of the directory delivers them. Without one the report returns
/// them. When the future is ready, the directory is free for another spool.
///
/// It is not a future itself: for `spawn` or `join!` write `async { spool.close().await }`. A sink
/// must not await the end of its own spool: it would wait for itself.
///
/// Several may be awaited; the earliest deadline counts, and each gets the report. Only the first
/// report contains the returned messages.
///
/// # Cancel safety
///
/// If the future is dropped before it is ready, the end goes on, with its deadline; await another
/// one for the report. The exception is a drop of the last handle of the spool: this value is a
/// handle too.
///
/// # Examples
///
/// ```
/// # use keylane_spool::{SinkError, Spool, Spooled};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let sink = |_: Vec<Spooled>| async move { Ok::<(), SinkError>(()) };
/// # let spool = Spool::builder(sink).open().await?;
/// use std::time::Duration;
///
/// let report = spool.close().within(Duration::from_secs(10)).await;
/// println!("{report}");
/// # Ok(())
/// # }
/// ```
#[must_use = "the end starts when it is awaited"]
pub struct Closing {
    spool: Spool,
    within: Option<Duration>,
}

impl Spool {
    /// Accepts no more messages, and delivers the accepted ones. Starts when it is awaited, see
    /// [`Closing`].
    pub fn close(&self) -> Closing {
        Closing {
            spool: self.clone(),
            within: None,
        }
    }
}

impl Closing {
    /// Stops delivery after this time, which counts from the first poll by the clock of the spool's
    /// runtime. A batch that is at the sink then counts as not delivered.
    pub fn within(mut self, limit: Duration) -> Self {
        self.within = Some(limit);
        self
    }
}

impl IntoFuture for Closing {
    type Output = SpoolReport;
    type IntoFuture = Pin<Box<dyn Future<Output = SpoolReport> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { spool, within } = self;
            let shared = spool.shared();
            shared.with(|core| core.drain(within));
            shared
                .until(|core| (core.stage() == Stage::Ended).then_some(()))
                .await;
            shared.with(|core| SpoolReport::new(core.counts(), core.take_left()))
        })
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing")
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}
