//! One queue and one worker: order is free, and so is every other core.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::designs::{Design, DesignError, Limits};
use crate::event::Event;
use crate::handler::Handler;

pub(crate) struct Single {
    queue: mpsc::Sender<Event>,
    worker: JoinHandle<()>,
}

impl Single {
    pub(crate) fn start(handler: Arc<Handler>, limits: Limits) -> Self {
        let (queue, mut events) = mpsc::channel(limits.capacity);
        let worker = tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                handler.handle(event).await;
            }
        });
        Self { queue, worker }
    }
}

impl Design for Single {
    async fn send(&mut self, event: Event) -> Result<(), DesignError> {
        self.queue
            .send(event)
            .await
            .map_err(|_| DesignError::WorkerGone)
    }

    async fn finish(self) -> Result<(), DesignError> {
        drop(self.queue);
        Ok(self.worker.await?)
    }
}
