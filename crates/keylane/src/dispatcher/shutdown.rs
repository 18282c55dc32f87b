//! How a dispatcher is shut down: drain, close, abort.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::hash::Hash;
use std::pin::Pin;
use std::time::Duration;

use keylane_rt::Arc;

use super::handle::Dispatcher;
use crate::engine::{Engine, Report, Stage};
use crate::types::Of;

impl<K, M, O, E> Dispatcher<K, M, O, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    /// No more in; what is in is handled to its end, retries included.
    ///
    /// Halted and paused lanes cannot come to an end and are handed back. Without a deadline
    /// ([`Shutdown::within`]) this waits as long as the handlers, the retries and the dead-letter
    /// sink take, and for messages that are delayed, keys above their rate, and the
    /// [`gap_timeout`](crate::Sequence::gap_timeout) of missing versions.
    ///
    /// It waits for every handler in flight, so a handler must not await it: it would wait for
    /// itself. The same holds for [`close`](Self::close); [`abort`](Self::abort) drops the handler
    /// that awaits it. A handler that finds a reason to stop starts the shutdown in a task of its
    /// own: `tokio::spawn(async move { orders.drain().await })`.
    pub fn drain(&self) -> Shutdown<K, M, O, E> {
        Shutdown::new(Arc::clone(&self.engine), Stage::Draining)
    }

    /// No new messages; jobs in flight are finished, all other messages are handed back.
    ///
    /// Handlers are asked to finish early through [`Context::cancelled`](crate::Context). A handler
    /// must not await this, as with [`drain`](Self::drain).
    pub fn close(&self) -> Shutdown<K, M, O, E> {
        Shutdown::new(Arc::clone(&self.engine), Stage::Closing)
    }

    /// No more in; handlers in flight are dropped, everything is handed back.
    pub fn abort(&self) -> Shutdown<K, M, O, E> {
        Shutdown::new(Arc::clone(&self.engine), Stage::Aborting)
    }

    /// Whether the dispatcher takes no more messages.
    pub fn is_closed(&self) -> bool {
        self.engine.shutdown.stage() > Stage::Open
    }
}

/// A shutdown that starts when it is awaited: [`drain`], [`close`] or [`abort`].
///
/// It is not a future itself: for `spawn`, `join!` or `block_on` write
/// `async { orders.drain().await }`, or call `into_future`. It may be awaited on any runtime.
///
/// Several may be awaited, from several clones and one after the other: the strictest counts, and
/// every one gets the report. The messages handed back come with the first report.
///
/// # Cancel safety
///
/// Dropped before it is ready, the shutdown goes on, its deadline included; await another one for
/// the report.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use keylane::Dispatcher;
/// # let orders = Dispatcher::builder(|order: &u64| order % 10)
/// #     .spawn(|_: u64| async move { Ok::<(), std::io::Error>(()) })?;
/// use std::time::Duration;
///
/// let report = orders.drain().within(Duration::from_secs(30)).await;
/// println!("{report}");
/// for back in report.returned {
///     println!("not handled, after {} attempts: {:?}", back.attempts, back.message);
/// }
/// # Ok(())
/// # }
/// ```
///
/// [`drain`]: crate::Dispatcher::drain
/// [`close`]: crate::Dispatcher::close
/// [`abort`]: crate::Dispatcher::abort
#[must_use = "the shutdown starts when it is awaited"]
pub struct Shutdown<K, M, O, E> {
    engine: Arc<Engine<Of<K, M, O, E>>>,
    stage: Stage,
    within: Option<Duration>,
}

impl<K, M, O, E> Shutdown<K, M, O, E> {
    fn new(engine: Arc<Engine<Of<K, M, O, E>>>, stage: Stage) -> Self {
        Self {
            engine,
            stage,
            within: None,
        }
    }

    /// Aborts what is left after this time. It is counted from the first poll, by the clock of the
    /// dispatcher's runtime; the earliest of several deadlines counts.
    pub fn within(mut self, limit: Duration) -> Self {
        self.within = Some(limit);
        self
    }
}

impl<K, M, O, E> IntoFuture for Shutdown<K, M, O, E>
where
    K: Eq + Clone + Send + Sync + 'static,
    M: Send + Sync + 'static,
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    type Output = Report<K, M>;
    type IntoFuture = Pin<Box<dyn Future<Output = Report<K, M>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self {
                engine,
                stage,
                within,
            } = self;
            let deadline = within.and_then(|within| engine.now().checked_add(within));
            if let Some(deadline) = deadline {
                engine.shutdown.limit(deadline);
            }
            engine.shutdown.enter(stage);
            // At once, and not only when the dispatcher task has heard of it.
            engine.stop_intake();
            engine.shutdown.ended().await;
            engine.report()
        })
    }
}

impl<K, M, O, E> fmt::Debug for Shutdown<K, M, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown")
            .field("stage", &self.stage)
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}
