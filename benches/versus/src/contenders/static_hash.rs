//! Static routing: the worker of a key never changes.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::contender::{Answers, Contender};
use crate::limits::Limits;
use crate::work::{Echo, Work};

/// Workers of every contender that has a fixed number of them.
pub(super) const WORKERS: usize = 64;

/// A channel and a task per worker; the capacity is divided among the channels.
#[derive(Clone)]
pub(super) struct StaticHash<W: Work> {
    workers: Arc<[mpsc::Sender<W::Message>]>,
    hasher: RandomState,
}

impl<W: Work> Contender<W> for StaticHash<W> {
    async fn start(limits: Limits) -> Self {
        let workers = (0..WORKERS)
            .map(|_| {
                let (sender, mut receiver) = mpsc::channel(limits.capacity.div_ceil(WORKERS));
                tokio::spawn(async move {
                    while let Some(message) = receiver.recv().await {
                        W::default().run(message).await;
                    }
                });
                sender
            })
            .collect();
        Self {
            workers,
            hasher: RandomState::new(),
        }
    }

    async fn send(&mut self, message: W::Message) {
        let worker = self.hasher.hash_one(W::key(&message)) as usize % WORKERS;
        let _ = self.workers[worker].send(message).await;
    }
}

impl Answers for StaticHash<Echo> {}
