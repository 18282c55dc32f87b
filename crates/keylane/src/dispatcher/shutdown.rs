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
    /// Drains the dispatcher: it takes no more messages, and handles the accepted ones to their
    /// end, retries included.
    ///
    /// Halted and paused lanes cannot come to an end and are handed back. Without a deadline
    /// ([`Shutdown::within`]) the shutdown waits as long as the handlers, the retries and the
    /// dead-letter sink take. It also waits for messages that are delayed, for keys above their
    /// rate, and for the [`gap_timeout`](crate::discipline::Sequence::gap_timeout) of missing versions.
    ///
    /// It waits for every handler in flight, so a handler must not await it: it would wait for
    /// itself. The same holds for [`close`](Self::close); [`abort`](Self::abort) drops the handler
    /// that awaits it. A handler that finds a reason to stop starts the shutdown in another task:
    /// `tokio::spawn(async move { orders.drain().await })`.
    pub fn drain(&self) -> Shutdown<K, M, O, E> {
        Shutdown::new(Arc::clone(&self.engine), Stage::Draining)
    }

    /// Closes the dispatcher: it takes no more messages, finishes the jobs in flight, and hands
    /// back all other messages.
    ///
    /// [`Context::cancelled`](crate::Context) asks handlers to finish early. A handler must not
    /// await this shutdown, as with [`drain`](Self::drain).
    pub fn close(&self) -> Shutdown<K, M, O, E> {
        Shutdown::new(Arc::clone(&self.engine), Stage::Closing)
    }

    /// Aborts the dispatcher: it takes no more messages, drops the handlers in flight, and hands
    /// everything back.
    pub fn abort(&self) -> Shutdown<K, M, O, E> {
        Shutdown::new(Arc::clone(&self.engine), Stage::Aborting)
    }

    /// Returns whether the dispatcher takes no more messages.
    pub fn is_closed(&self) -> bool {
        self.engine.shutdown.stage() > Stage::Open
    }
}

/// A shutdown that starts when it is awaited: [`drain`], [`close`] or [`abort`].
///
/// It is not a future itself: for `spawn`, `join!` or `block_on` write
/// `async { orders.drain().await }`, or call `into_future`. It may be awaited on any runtime.
///
/// Several shutdowns may be awaited, from several clones and one after the other: the strictest
/// counts, and each returns the report. The messages handed back come with the first report.
///
/// # Cancel safety
///
/// If the future is dropped before it is ready, the shutdown goes on, its deadline included. Await
/// another shutdown for the report.
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

    /// Aborts what is left after this time. The time counts from the first poll, by the clock of
    /// the dispatcher's runtime; the earliest of several deadlines counts.
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
            let deadline = within.and_then(|within| engine.clocks.now().checked_add(within));
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
