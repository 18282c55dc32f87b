//! A kameo actor per key, found in a shared map.

use std::convert::Infallible;
use std::sync::Arc;

use dashmap::DashMap;
use kameo::actor::{Actor, ActorRef, Spawn};
use kameo::error::SendError;
use kameo::mailbox;
use kameo::message::{Context, Message};

use crate::contender::{Answers, Contender};
use crate::limits::Limits;
use crate::message::Ask;
use crate::work::{Echo, Work};

struct KeyActor<W>(W);

impl<W: Work> Actor for KeyActor<W> {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(args: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(args)
    }
}

impl<W: Work> Message<W::Message> for KeyActor<W> {
    type Reply = ();

    async fn handle(&mut self, message: W::Message, _: &mut Context<Self, ()>) {
        self.0.run(message).await;
    }
}

/// The map never forgets a key, as with a channel per key.
#[derive(Clone)]
pub(super) struct ActorPerKey<W: Work> {
    actors: Arc<DashMap<u64, ActorRef<KeyActor<W>>>>,
    mailbox: usize,
}

impl<W: Work> Contender<W> for ActorPerKey<W> {
    async fn start(limits: Limits) -> Self {
        Self {
            actors: Arc::default(),
            mailbox: limits.lane,
        }
    }

    async fn send(&mut self, message: W::Message) {
        if let Some((actor, message)) = self.try_send(message) {
            let _ = actor.tell(message).send().await;
        }
        // A try never yields, and producers that never do would keep the tasks from their threads.
        tokio::task::coop::consume_budget().await;
    }
}

impl<W: Work> ActorPerKey<W> {
    /// Sends under the map's guard, or says whom to wait for.
    fn try_send(&self, message: W::Message) -> Option<(ActorRef<KeyActor<W>>, W::Message)> {
        let key = W::key(&message);
        if let Some(actor) = self.actors.get(&key) {
            return attempt(&actor, message);
        }
        attempt(
            &self.actors.entry(key).or_insert_with(|| self.spawn()),
            message,
        )
    }

    fn spawn(&self) -> ActorRef<KeyActor<W>> {
        KeyActor::spawn_with_mailbox(KeyActor(W::default()), mailbox::bounded(self.mailbox))
    }
}

fn attempt<W: Work>(
    actor: &ActorRef<KeyActor<W>>,
    message: W::Message,
) -> Option<(ActorRef<KeyActor<W>>, W::Message)> {
    match actor.tell(message).try_send() {
        Err(SendError::MailboxFull(message)) => Some((actor.clone(), message)),
        _ => None,
    }
}

impl Answers for ActorPerKey<Echo> {
    async fn ask(&mut self, key: u64) {
        let actor = self
            .actors
            .entry(key)
            .or_insert_with(|| self.spawn())
            .clone();
        actor
            .ask(Ask { key, reply: None })
            .send()
            .await
            .expect("the actor lives");
    }
}
