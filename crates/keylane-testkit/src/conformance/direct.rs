//! A source that a case drives directly, without a dispatcher.

use std::time::Duration;

use keylane::source::{
    Deliveries, Delivery, Outcome, RawMessage, Received, Settlement, Source, SourceError,
};
use tokio::time::{Instant, timeout, timeout_at};

use super::broken::{Broken, expect};
use super::message::id_of;
use crate::events::Id;

pub(super) struct Direct<S: Source> {
    pub(super) source: S,
    patience: Duration,
}

/// The messages that a source has handed over.
pub(super) type Handed<S> = Vec<Delivery<RawMessage, <S as Source>::Position>>;

/// Returns the ids of the messages, in order.
pub(super) fn ids<P>(handed: &[Delivery<RawMessage, P>]) -> Vec<Id> {
    let ids = handed.iter().map(|delivery| id_of(&delivery.message));
    ids.map(Option::unwrap_or_default).collect()
}

impl<S: Source<Message = RawMessage>> Direct<S> {
    pub(super) fn new(source: S, patience: Duration) -> Self {
        Self { source, patience }
    }

    /// Opens the source, or opens it again. It may fail for a while.
    pub(super) async fn open(&mut self) -> Result<(), Broken> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.within(async |source| source.open().await).await {
                Ok(()) => return Ok(()),
                Err(broken) if Instant::now() >= deadline => return Err(broken),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Receives until there are so many, or for this time.
    pub(super) async fn receive_for(
        &mut self,
        most: usize,
        wait: Duration,
    ) -> Result<Handed<S>, Broken> {
        let deadline = Instant::now() + wait;
        let mut handed = Vec::new();
        while handed.len() < most && Instant::now() < deadline {
            let mut into = Deliveries::new(most - handed.len(), deadline);
            let limit = deadline + self.patience / 4;
            let received = timeout_at(limit, self.source.receive(&mut into)).await;
            handed.extend(into.take());
            match received {
                Ok(Ok(Received::End)) => break,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(Broken::new(error.to_string())),
                // Another case tests that it returns in time.
                Err(_) => break,
            }
        }
        Ok(handed)
    }

    /// Receives so many.
    pub(super) async fn receive(&mut self, count: usize) -> Result<Handed<S>, Broken> {
        let handed = self.receive_for(count, self.patience).await?;
        expect(handed.len() >= count, || {
            let came = handed.len();
            format!("{came} of {count} messages came in {:?}", self.patience)
        })?;
        Ok(handed)
    }

    /// Settles deliveries, all with one outcome.
    pub(super) async fn settle<'a>(
        &mut self,
        positions: impl IntoIterator<Item = &'a S::Position>,
        outcome: Outcome,
    ) -> Result<(), Broken> {
        let settled: Vec<_> = positions
            .into_iter()
            .map(|position| Settlement::new(position.clone(), outcome))
            .collect();
        self.within(async |source| source.settle(&settled).await)
            .await
    }

    /// Acks deliveries, and waits until that is confirmed.
    pub(super) async fn ack<'a>(
        &mut self,
        positions: impl IntoIterator<Item = &'a S::Position>,
    ) -> Result<(), Broken> {
        self.settle(positions, Outcome::Done).await?;
        self.within(async |source| source.confirm().await).await
    }

    /// Calls the source, with a limit.
    pub(super) async fn within<R>(
        &mut self,
        call: impl AsyncFnOnce(&mut S) -> Result<R, SourceError>,
    ) -> Result<R, Broken> {
        // A call that waits for `until` may take as long as that, and then some.
        let answer = timeout(self.patience * 2, call(&mut self.source)).await;
        let answer = answer.map_err(|_| Broken::new("a call did not return"))?;
        answer.map_err(|error| Broken::new(error.to_string()))
    }
}
