//! One channel and one loop: what a hop costs, and nothing else.

use tokio::sync::mpsc;

use crate::contender::{Answers, Contender};
use crate::limits::Limits;
use crate::work::{Echo, Work};

const BATCH: usize = 256;

/// Receives one message at a time.
#[derive(Clone)]
pub(super) struct Floor<W: Work>(mpsc::Sender<W::Message>);

impl<W: Work> Contender<W> for Floor<W> {
    async fn start(limits: Limits) -> Self {
        let (sender, mut receiver) = mpsc::channel(limits.capacity);
        tokio::spawn(async move {
            while let Some(message) = receiver.recv().await {
                W::default().run(message).await;
            }
        });
        Self(sender)
    }

    async fn send(&mut self, message: W::Message) {
        // The loop is gone only when the runtime is.
        let _ = self.0.send(message).await;
    }
}

impl Answers for Floor<Echo> {}

/// Receives what is there.
#[derive(Clone)]
pub(super) struct FloorMany<W: Work>(mpsc::Sender<W::Message>);

impl<W: Work> Contender<W> for FloorMany<W> {
    async fn start(limits: Limits) -> Self {
        let (sender, mut receiver) = mpsc::channel(limits.capacity);
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(BATCH);
            while receiver.recv_many(&mut batch, BATCH).await > 0 {
                for message in batch.drain(..) {
                    W::default().run(message).await;
                }
            }
        });
        Self(sender)
    }

    async fn send(&mut self, message: W::Message) {
        let _ = self.0.send(message).await;
    }
}

impl Answers for FloorMany<Echo> {}
