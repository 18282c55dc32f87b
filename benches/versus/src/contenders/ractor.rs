//! A ractor factory with key-persistent routing.

use std::marker::PhantomData;
use std::sync::Arc;

use ractor::factory::queues::DefaultQueue;
use ractor::factory::routing::KeyPersistentRouting;
use ractor::factory::{
    Factory, FactoryArguments, FactoryRef, Job, Worker, WorkerId, worker_builder,
};
use ractor::{Actor, ActorProcessingErr};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::static_hash::WORKERS;
use crate::contender::{Answers, Contender};
use crate::limits::Limits;
use crate::work::{Echo, Work};

/// The message as ractor wants it, with a `Debug`, and with the room it takes.
struct Item<M> {
    message: M,
    _room: OwnedSemaphorePermit,
}

impl<M> std::fmt::Debug for Item<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Item")
    }
}

struct KeyWorker<W>(W);

impl<W: Work> Worker for KeyWorker<W> {
    type Key = u64;
    type Message = Item<W::Message>;
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        _: WorkerId,
        _: &FactoryRef<u64, Self::Message>,
        (): (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: WorkerId,
        _: &FactoryRef<u64, Self::Message>,
        Job { key, msg, .. }: Job<u64, Self::Message>,
        _: &mut (),
    ) -> Result<u64, ActorProcessingErr> {
        self.0.run(msg.message).await;
        Ok(key)
    }
}

/// The factory's intake has no limit, and its workers report to the same mailbox: behind a flood
/// they wait for their next job until all of it is routed. A semaphore around it keeps it in its
/// best range.
pub(super) struct KeyPersistent<W: Work> {
    factory: FactoryRef<u64, Item<W::Message>>,
    room: Arc<Semaphore>,
    _work: PhantomData<W>,
}

impl<W: Work> Clone for KeyPersistent<W> {
    fn clone(&self) -> Self {
        Self {
            factory: self.factory.clone(),
            room: Arc::clone(&self.room),
            _work: PhantomData,
        }
    }
}

impl<W: Work> Contender<W> for KeyPersistent<W> {
    async fn start(limits: Limits) -> Self {
        let factory = Factory::<
            u64,
            Item<W::Message>,
            (),
            KeyWorker<W>,
            KeyPersistentRouting<_, _>,
            DefaultQueue<_, _>,
        >::default();
        let arguments = FactoryArguments::builder()
            .worker_builder(Box::new(worker_builder(|_| (KeyWorker(W::default()), ()))))
            .router(KeyPersistentRouting::default())
            .queue(DefaultQueue::default())
            .num_initial_workers(WORKERS)
            .build();
        let (factory, _) = Actor::spawn(None, factory, arguments)
            .await
            .expect("a factory without hooks starts");
        Self {
            factory,
            room: Arc::new(Semaphore::new(limits.capacity / 8)),
            _work: PhantomData,
        }
    }

    async fn send(&mut self, message: W::Message) {
        let room = Arc::clone(&self.room).acquire_owned().await;
        let room = room.expect("the semaphore is never closed");
        let _ = self.factory.dispatch(
            W::key(&message),
            Item {
                message,
                _room: room,
            },
        );
    }
}

impl Answers for KeyPersistent<Echo> {}
