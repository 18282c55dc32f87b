//! keylane, with any key function.

use std::convert::Infallible;
use std::hash::Hash;
use std::sync::Arc;

use keylane::{Dispatcher, Overflow};

use super::{Design, DesignError};
use crate::handler::Handler;
use crate::traffic::Message;

pub(crate) struct Engine<K> {
    messages: Dispatcher<K, Message, (), Infallible>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Engine<K> {
    /// With room for all messages in each lane: the one sender of this example must not be held up.
    pub(crate) fn start(
        key: impl Fn(&Message) -> K + Send + Sync + 'static,
        handler: Arc<Handler>,
        room: usize,
    ) -> Result<Self, DesignError> {
        let messages = Dispatcher::builder(key)
            .capacity(room)
            .lane_capacity(room, Overflow::Wait)
            .spawn(move |message: Message| {
                let handler = Arc::clone(&handler);
                async move {
                    handler.handle(message).await;
                    Ok::<_, Infallible>(())
                }
            })?;
        Ok(Self { messages })
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Design for Engine<K> {
    async fn send(&mut self, message: Message) -> Result<(), DesignError> {
        let sent = self.messages.send(message).await;
        sent.map_err(|_| DesignError::WorkerGone)
    }

    fn queues(&self) -> usize {
        self.messages.stats().lanes
    }

    async fn finish(self) -> Result<(), DesignError> {
        self.messages.drain().await;
        Ok(())
    }
}
