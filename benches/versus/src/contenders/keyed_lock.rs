//! `for_each_concurrent` over a channel, and keyed-lock around each handler.

use futures::StreamExt;
use futures::stream;
use keyed_lock::r#async::KeyedLock;
use tokio::sync::mpsc;

use crate::contender::{Answers, Contender};
use crate::limits::Limits;
use crate::work::{Echo, Work};

/// Every handler runs in the one task that polls the stream.
#[derive(Clone)]
pub(super) struct KeyedLocks<W: Work>(mpsc::Sender<W::Message>);

impl<W: Work> Contender<W> for KeyedLocks<W> {
    async fn start(limits: Limits) -> Self {
        let (sender, mut receiver) = mpsc::channel(limits.capacity);
        tokio::spawn(async move {
            let locks = KeyedLock::new();
            let locks = &locks;
            stream::poll_fn(|cx| receiver.poll_recv(cx))
                .for_each_concurrent(limits.concurrency, |message| async move {
                    let _guard = locks.lock(W::key(&message)).await;
                    W::default().run(message).await;
                })
                .await;
        });
        Self(sender)
    }

    async fn send(&mut self, message: W::Message) {
        let _ = self.0.send(message).await;
    }
}

impl Answers for KeyedLocks<Echo> {}
