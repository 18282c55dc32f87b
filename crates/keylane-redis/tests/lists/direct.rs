//! A source without a dispatcher.

use std::time::Duration;

use keylane::source::{Deliveries, Outcome, RawMessage, Settlement, Source};
use keylane_redis::{ListPosition, ListQueue, ListSource};
use tokio::time::{Instant, timeout};

/// A source that the test drives itself.
pub(crate) struct Direct(pub(crate) ListSource);

impl Direct {
    pub(crate) async fn open(queue: &ListQueue) -> Self {
        let mut source = queue.source();
        source.open().await.unwrap();
        Self(source)
    }

    /// Returns the deliveries of one call.
    pub(crate) async fn receive(&mut self, room: usize) -> Vec<(RawMessage, ListPosition)> {
        let mut into = Deliveries::new(room, Instant::now() + Duration::from_secs(5));
        let received = timeout(Duration::from_secs(30), self.0.receive(&mut into)).await;
        received.expect("in time").expect("the source is well");
        let handed = into.take().into_iter();
        handed
            .map(|delivery| (delivery.message, delivery.position))
            .collect()
    }

    pub(crate) async fn receive_all(&mut self, count: usize) -> Vec<(RawMessage, ListPosition)> {
        let mut all = Vec::new();
        let limit = Instant::now() + Duration::from_secs(20);
        while all.len() < count {
            assert!(Instant::now() < limit, "{} of {count} have come", all.len());
            all.extend(self.receive(count - all.len()).await);
        }
        all
    }

    pub(crate) async fn ack(&mut self, handed: &[(RawMessage, ListPosition)]) {
        let settled: Vec<_> = handed
            .iter()
            .map(|(_, position)| Settlement::new(position.clone(), Outcome::Done))
            .collect();
        self.0.settle(&settled).await.unwrap();
        self.0.confirm().await.unwrap();
    }

    /// Settles all of these with the same outcome.
    pub(crate) async fn settle(&mut self, handed: &[(RawMessage, ListPosition)], outcome: Outcome) {
        let settled = handed
            .iter()
            .map(|(_, position)| Settlement::new(position.clone(), outcome));
        self.0.settle(&settled.collect::<Vec<_>>()).await.unwrap();
    }
}

/// The payloads, in the order of arrival.
pub(crate) fn payloads(handed: &[(RawMessage, ListPosition)]) -> Vec<&[u8]> {
    handed
        .iter()
        .map(|(message, _)| &*message.payload)
        .collect()
}
