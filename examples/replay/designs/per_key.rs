//! A queue and a task for each path: no path waits for another one, and nothing ever goes away.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::designs::{Design, DesignError, Limits};
use crate::event::{Event, RepoPath};
use crate::handler::Handler;

pub(crate) struct PerKey {
    handler: Arc<Handler>,
    queues: HashMap<RepoPath, mpsc::UnboundedSender<Accepted>>,
    workers: JoinSet<()>,
    /// The queues have no limits of their own: this one is for all of them together.
    capacity: Arc<Semaphore>,
    concurrency: Arc<Semaphore>,
}

impl PerKey {
    pub(crate) fn start(handler: Arc<Handler>, limits: Limits) -> Self {
        Self {
            handler,
            queues: HashMap::new(),
            workers: JoinSet::new(),
            capacity: Arc::new(Semaphore::new(limits.capacity)),
            concurrency: Arc::new(Semaphore::new(limits.concurrency)),
        }
    }

    fn start_worker(&mut self) -> mpsc::UnboundedSender<Accepted> {
        let (queue, mut events) = mpsc::unbounded_channel::<Accepted>();
        let (handler, concurrency) = (self.handler.clone(), self.concurrency.clone());
        self.workers.spawn(async move {
            while let Some(accepted) = events.recv().await {
                let slot = concurrency.acquire().await.expect("nothing closes it");
                handler.handle(accepted.event).await;
                drop((slot, accepted.room));
            }
        });
        queue
    }
}

impl Design for PerKey {
    async fn send(&mut self, event: Event) -> Result<(), DesignError> {
        let room = self
            .capacity
            .clone()
            .acquire_owned()
            .await
            .expect("nothing closes it");
        let queue = match self.queues.get(&event.change.path) {
            Some(queue) => queue,
            None => {
                let queue = self.start_worker();
                self.queues
                    .entry(event.change.path.clone())
                    .or_insert(queue)
            }
        };
        queue
            .send(Accepted { event, room })
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

struct Accepted {
    event: Event,
    room: OwnedSemaphorePermit,
}
