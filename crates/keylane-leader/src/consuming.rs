//! A career that consumes a source while it leads.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use keylane::consume::Intake;

use crate::career::{Career, End, Stop, Term};

/// How long messages may take to settle when the leader leaves, unless it is set.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// A career that consumes a source while it leads: see [`consuming`].
pub struct Consuming<F, D> {
    start: F,
    running: Option<(D, Intake)>,
    drain_within: Duration,
}

/// Returns a career that consumes a source while it leads.
///
/// `start` is called for each term. It opens the source, makes the dispatcher, and returns the
/// intake, and with it what must live as long, commonly the dispatcher. Give the dispatcher the
/// [lanes](Term::lanes) of the term: then its handlers have the term's token, and they are dropped
/// when the term is lost.
///
/// When the leader leaves, the intake stops, the messages that are here settle, their acks are
/// confirmed, and only then the term is released. Messages that take longer than
/// [`drain_within`](Consuming::drain_within) are handed back to the source. When the term is lost,
/// what has not started is handed back, and so it is in another history of the store. An intake
/// that ends by itself is a failure: after a pause the candidate stands again, and `start` is
/// called anew.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
/// use keylane::{Dispatcher, OnExhausted};
/// use keylane::source::RawMessage;
/// use keylane_leader::{Candidate, Elections, MemoryElections, consuming};
/// # use keylane_testkit::reference::ReferenceSource;
/// # async fn open() -> std::io::Result<ReferenceSource> { todo!() }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let elections = Elections::open(Arc::new(MemoryElections::new()))?;
/// let office = Candidate::builder(&elections, "billing").run(consuming(|term| async move {
///     let orders = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
///         .leased_by(term.lanes())
///         .on_exhausted(OnExhausted::Halt)
///         .spawn(|order: RawMessage| async move {
///             println!("order {order:?}");
///             Ok::<_, std::io::Error>(())
///         })
///         .map_err(std::io::Error::other)?;
///     let intake = orders.consume(open().await?).map_err(std::io::Error::other)?;
///     Ok::<_, std::io::Error>((orders, intake))
/// }))?;
/// # office.close().await;
/// # Ok(())
/// # }
/// ```
pub fn consuming<F, R, D, E>(start: F) -> Consuming<F, D>
where
    F: FnMut(Term) -> R + Send + 'static,
    R: Future<Output = Result<(D, Intake), E>> + Send,
    D: Send + 'static,
    E: fmt::Display + Send + 'static,
{
    Consuming {
        start,
        running: None,
        drain_within: DRAIN_WITHIN,
    }
}

impl<F, D> Consuming<F, D> {
    /// Sets how long messages may take to settle when the leader leaves: 5 seconds by default. It
    /// must be less than [`hand_over_limit`](crate::CandidateBuilder::hand_over_limit).
    #[must_use]
    pub fn drain_within(mut self, limit: Duration) -> Self {
        self.drain_within = limit;
        self
    }
}

impl<F, R, D, E> Career for Consuming<F, D>
where
    F: FnMut(Term) -> R + Send + 'static,
    R: Future<Output = Result<(D, Intake), E>> + Send,
    D: Send + 'static,
    E: fmt::Display + Send + 'static,
{
    type Error = String;

    async fn inaugurate(&mut self, term: &Term) -> Result<(), String> {
        let started = (self.start)(term.clone()).await;
        self.running = Some(started.map_err(|error| error.to_string())?);
        Ok(())
    }

    async fn execute(&mut self, _: &Term, stop: Stop) -> Result<(), String> {
        let Some((_, intake)) = &self.running else {
            return Ok(());
        };
        tokio::select! {
            () = stop.requested() => Ok(()),
            report = intake.ended() => Err(format!("the intake has ended by itself: {report}")),
        }
    }

    async fn hand_over(&mut self, term: &Term, why: End) {
        let Some((kept, intake)) = self.running.take() else {
            return;
        };
        // Without a term nothing may be done any more: what has not started goes back.
        // In another history the lease may go on, but its token means nothing there.
        let limit = match term.check() {
            Ok(()) if why != End::OtherHistory => self.drain_within,
            _ => Duration::ZERO,
        };
        let report = intake.stop().within(limit).await;
        tracing::info!(token = %term.token(), %report, "the leader has stopped to consume");
        drop(kept);
    }
}

impl<F, D> fmt::Debug for Consuming<F, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consuming")
            .field("consumes", &self.running.is_some())
            .finish_non_exhaustive()
    }
}
