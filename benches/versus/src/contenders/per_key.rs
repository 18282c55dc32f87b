//! A channel and a task per key, found in a shared map.

use std::sync::Arc;

use dashmap::DashMap;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::contender::{Answers, Contender};
use crate::limits::Limits;
use crate::work::{Echo, Work};

/// The map never forgets a key: a task that ends while a sender holds its channel loses messages,
/// and those who write this design leave it at that.
#[derive(Clone)]
pub(super) struct PerKey<W: Work> {
    lanes: Arc<DashMap<u64, mpsc::Sender<W::Message>>>,
    lane: usize,
}

impl<W: Work> Contender<W> for PerKey<W> {
    async fn start(limits: Limits) -> Self {
        Self {
            lanes: Arc::default(),
            lane: limits.lane,
        }
    }

    async fn send(&mut self, message: W::Message) {
        if let Some((lane, message)) = self.try_send(message) {
            let _ = lane.send(message).await;
        }
        // A try never yields, and producers that never do would keep the tasks from their threads.
        tokio::task::coop::consume_budget().await;
    }
}

impl<W: Work> PerKey<W> {
    /// Sends under the map's guard, or says where to wait: a clone of the channel for each message
    /// would cost more.
    fn try_send(&self, message: W::Message) -> Option<(mpsc::Sender<W::Message>, W::Message)> {
        let key = W::key(&message);
        if let Some(lane) = self.lanes.get(&key) {
            return attempt(&lane, message);
        }
        let lane = self.lanes.entry(key).or_insert_with(|| {
            let (sender, mut receiver) = mpsc::channel(self.lane);
            tokio::spawn(async move {
                while let Some(message) = receiver.recv().await {
                    W::default().run(message).await;
                }
            });
            sender
        });
        attempt(&lane, message)
    }
}

fn attempt<M>(lane: &mpsc::Sender<M>, message: M) -> Option<(mpsc::Sender<M>, M)> {
    match lane.try_send(message) {
        Err(TrySendError::Full(message)) => Some((lane.clone(), message)),
        Ok(()) | Err(TrySendError::Closed(_)) => None,
    }
}

impl Answers for PerKey<Echo> {}
