//! How a spool is closed.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use super::core::Stage;
use super::handle::Spool;
use super::report::SpoolReport;

/// An end that starts when it is awaited: [`Spool::close`](super::Spool::close).
///
/// What is in is delivered, without waiting for batches to fill. Halted keys cannot come to an end
/// and are left. Without a deadline ([`within`](Self::within)) it waits as long as the sink takes,
/// or fails.
///
/// With a directory, what is not delivered is stored, under every policy, and the next
/// [`open`](super::Builder::open) of the directory delivers it. Without one it comes back in the
/// report. When the future is ready, the directory is free for another spool.
///
/// It is not a future itself: for `spawn` or `join!` write `async { spool.close().await }`. A sink
/// must not await the end of its own spool: it would wait for itself.
///
/// Several may be awaited; the earliest deadline counts, and every one gets the report. The
/// messages that come back come with the first one.
///
/// # Cancel safety
///
/// Dropped before it is ready, the end goes on, its deadline included; await another one for the
/// report. Unless that drops the last handle of the spool: this is one, too.
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

impl Closing {
    pub(super) fn new(spool: Spool) -> Self {
        Self {
            spool,
            within: None,
        }
    }

    /// Stops to deliver after this time, counted from the first poll by the clock of the spool's
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
