//! An inbox has no messages without a key, and the suite for sources has: here they have a header.

use std::sync::Arc;

use keylane::source::{
    Deliveries, Features, RawMessage, Received, Settlement, Source, SourceError, SourceLetter,
    StartGuard,
};
use keylane_sql::{SqlPosition, SqlSource};

/// The header of a message that had no key.
pub(crate) const NO_KEY: &str = "no-key";

pub(crate) struct Keyless(pub(crate) SqlSource);

impl Source for Keyless {
    type Message = RawMessage;
    type Position = SqlPosition;

    fn features(&self) -> Features {
        self.0.features()
    }

    fn validate(&self) -> Result<(), SourceError> {
        self.0.validate()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.0.open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, SqlPosition>,
    ) -> Result<Received<SqlPosition>, SourceError> {
        let received = self.0.receive(into).await;
        for mut delivery in into.take() {
            if delivery.message.header(NO_KEY).is_some() {
                delivery.message.key = None;
            }
            into.push(delivery);
        }
        received
    }

    async fn settle(&mut self, settled: &[Settlement<SqlPosition>]) -> Result<(), SourceError> {
        self.0.settle(settled).await
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.0.confirm().await
    }

    async fn dead_letter(&mut self, letter: SourceLetter<SqlPosition>) -> Result<(), SourceError> {
        self.0.dead_letter(letter).await
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<SqlPosition>>> {
        self.0.start_guard()
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        self.0.close().await
    }
}
