//! future-queue's grouped adaptor: a group of weight 1 per key.

use future_queue::StreamExt as _;
use futures::{StreamExt as _, stream};
use tokio::sync::mpsc;

use crate::contender::{Answers, Contender};
use crate::limits::Limits;
use crate::work::{Echo, Work};

/// Every handler runs in the one task that polls the stream; every key is named beforehand.
#[derive(Clone)]
pub(super) struct Grouped<W: Work>(mpsc::Sender<W::Message>);

impl<W: Work> Contender<W> for Grouped<W> {
    async fn start(limits: Limits) -> Self {
        let (sender, mut receiver) = mpsc::channel(limits.capacity);
        tokio::spawn(async move {
            stream::poll_fn(|cx| receiver.poll_recv(cx))
                .map(|message: W::Message| {
                    (1, Some(W::key(&message)), move |_| {
                        W::default().run(message)
                    })
                })
                .future_queue_grouped(limits.concurrency, (0..limits.keys).map(|key| (key, 1)))
                .for_each(|()| async {})
                .await;
        });
        Self(sender)
    }

    async fn send(&mut self, message: W::Message) {
        let _ = self.0.send(message).await;
    }
}

impl Answers for Grouped<Echo> {}
