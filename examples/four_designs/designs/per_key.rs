//! A queue and a task for each user, as one would write it: no user waits for another one, and nothing
//! goes away before the end.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Design, DesignError};
use crate::handler::Handler;
use crate::traffic::{Message, User};

pub(crate) struct PerKey {
    handler: Arc<Handler>,
    queues: HashMap<User, mpsc::UnboundedSender<Message>>,
    workers: JoinSet<()>,
}

impl PerKey {
    pub(crate) fn start(handler: Arc<Handler>) -> Self {
        Self {
            handler,
            queues: HashMap::new(),
            workers: JoinSet::new(),
        }
    }
}

impl Design for PerKey {
    async fn send(&mut self, message: Message) -> Result<(), DesignError> {
        let queue = self.queues.entry(message.user).or_insert_with(|| {
            let (queue, mut messages) = mpsc::unbounded_channel();
            let handler = Arc::clone(&self.handler);
            self.workers.spawn(async move {
                while let Some(message) = messages.recv().await {
                    handler.handle(message).await;
                }
            });
            queue
        });
        queue.send(message).map_err(|_| DesignError::WorkerGone)
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    async fn finish(mut self) -> Result<(), DesignError> {
        self.queues.clear();
        while let Some(ended) = self.workers.join_next().await {
            ended?;
        }
        Ok(())
    }
}
