//! A task per message: no order, and the price of a task.

use std::marker::PhantomData;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::contender::{Answers, Contender};
use crate::limits::Limits;
use crate::work::{Echo, Work};

/// The producer takes a permit, the task gives it back.
#[derive(Clone)]
pub(super) struct Spawn<W>(Arc<Semaphore>, PhantomData<W>);

impl<W: Work> Contender<W> for Spawn<W> {
    async fn start(limits: Limits) -> Self {
        Self(Arc::new(Semaphore::new(limits.concurrency)), PhantomData)
    }

    async fn send(&mut self, message: W::Message) {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        tokio::spawn(async move {
            W::default().run(message).await;
            drop(permit);
        });
    }
}

impl Answers for Spawn<Echo> {}
