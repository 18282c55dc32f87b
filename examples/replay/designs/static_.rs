//! A fixed number of workers, and each path always goes to the same one.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::designs::{Design, DesignError, Limits};
use crate::event::Event;
use crate::handler::Handler;

pub(crate) struct Static {
    queues: Vec<mpsc::Sender<Event>>,
    workers: JoinSet<()>,
    hasher: RandomState,
}

impl Static {
    pub(crate) fn start(handler: &Arc<Handler>, workers: NonZeroU32, limits: Limits) -> Self {
        let count = workers.get() as usize;
        let mut design = Self {
            queues: Vec::with_capacity(count),
            workers: JoinSet::new(),
            hasher: RandomState::new(),
        };
        for _ in 0..count {
            let (queue, mut events) = mpsc::channel(limits.capacity.div_ceil(count));
            let handler = handler.clone();
            design.queues.push(queue);
            design.workers.spawn(async move {
                while let Some(event) = events.recv().await {
                    handler.handle(event).await;
                }
            });
        }
        design
    }
}

impl Design for Static {
    async fn send(&mut self, event: Event) -> Result<(), DesignError> {
        let worker = self.hasher.hash_one(&event.change.path) as usize % self.queues.len();
        self.queues[worker]
            .send(event)
            .await
            .map_err(|_| DesignError::WorkerGone)
    }

    async fn finish(mut self) -> Result<(), DesignError> {
        self.queues.clear();
        while let Some(ended) = self.workers.join_next().await {
            ended?;
        }
        Ok(())
    }
}
