//! keylane-redis on a list.

use std::convert::Infallible;
use std::time::Duration;

use async_trait::async_trait;
use keylane::consume::Intake;
use keylane::source::{Deliveries, RawMessage, Source};
use keylane::{Dispatcher, OnExhausted};
use keylane_redis::{ListKey, ListQueue, ListSource, Redis};
use redis::aio::MultiplexedConnection;
use redis::{Client, cmd};
use tokio::time::Instant;

use super::{CONCURRENCY, Contender, HELD, Setup};
use crate::Error;
use crate::message::Message;
use crate::work::Work;

const LIST: &str = "messages";

pub(super) type Lanes = Dispatcher<u32, Message, (), Infallible>;

/// What the elements of the list are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elements {
    /// Messages that were pushed by the queue, with their keys beside them.
    WithKeys,
    /// Payloads that were pushed with `LPUSH`; the key stands before the colon.
    Plain,
}

pub(super) struct KeylaneList {
    connection: MultiplexedConnection,
    elements: Elements,
    queue: ListQueue,
    workers: Vec<ListQueue>,
    /// A worker that lives, and settles nothing.
    holder: ListSource,
    running: Vec<(Lanes, Intake)>,
}

impl KeylaneList {
    pub(super) async fn open(setup: &Setup, elements: Elements) -> Result<Self, Error> {
        let client = Client::open(setup.url.as_str())?;
        let queue = || {
            let key = match elements {
                Elements::WithKeys => ListKey::none(),
                Elements::Plain => ListKey::before(b":"),
            };
            let redis = Redis::at(&setup.url)?;
            let queue = ListQueue::builder(&redis, LIST).key(key);
            // What cannot be decoded must have a place.
            queue.dead_letters().build()
        };
        let first = queue()?;
        let holder = hold(&first).await?;
        Ok(Self {
            connection: client.get_multiplexed_async_connection().await?,
            elements,
            queue: first,
            workers: (0..setup.workers)
                .map(|_| queue())
                .collect::<Result<_, _>>()?,
            holder,
            running: Vec::new(),
        })
    }
}

/// Has messages of other keys held by a worker of their own.
async fn hold(queue: &ListQueue) -> Result<ListSource, Error> {
    let held: Vec<_> = (0..HELD)
        .map(|number| RawMessage::new("held").key(format!("held-{number}")))
        .collect();
    for chunk in held.chunks(1_000) {
        queue.push_all(chunk).await?;
    }
    let mut holder = queue.source();
    holder.open().await?;
    let mut left = HELD;
    while left > 0 {
        let mut taken = Deliveries::new(left, Instant::now() + Duration::from_secs(5));
        holder.receive(&mut taken).await?;
        left -= taken.len();
    }
    Ok(holder)
}

#[async_trait]
impl Contender for KeylaneList {
    async fn store(&mut self, messages: &[Message]) -> Result<(), Error> {
        match self.elements {
            Elements::WithKeys => {
                let messages: Vec<_> = messages
                    .iter()
                    .map(|message| RawMessage::new(message.payload()).key(message.key_text()))
                    .collect();
                self.queue.push_all(&messages).await?;
            }
            Elements::Plain => {
                let mut push = cmd("LPUSH");
                push.arg(LIST);
                for message in messages {
                    push.arg(message.payload());
                }
                push.exec_async(&mut self.connection).await?;
            }
        }
        Ok(())
    }

    async fn begin(&mut self, work: &Work) -> Result<(), Error> {
        for queue in &self.workers {
            self.running.push(consume(queue.source(), work)?);
        }
        Ok(())
    }

    async fn is_confirmed(&mut self, _: u64) -> Result<bool, Error> {
        let status = self.queue.status().await?;
        let held: u64 = status
            .workers
            .iter()
            .map(|worker| worker.held + worker.sent)
            .sum();
        Ok(status.waiting == 0 && held == HELD as u64)
    }

    async fn end(&mut self) {
        for (lanes, intake) in self.running.drain(..) {
            intake.stop().await;
            lanes.drain().await;
        }
        // Its lease is given up; nothing is left to lose if that fails.
        let _ = self.holder.close().await;
    }
}

/// A worker: a dispatcher with a source of messages in our form.
pub(super) fn consume<S>(source: S, work: &Work) -> Result<(Lanes, Intake), Error>
where
    S: Source<Message = RawMessage>,
{
    let work = work.clone();
    let lanes = Dispatcher::builder(|message: &Message| message.key)
        .concurrency(CONCURRENCY)
        .on_exhausted(OnExhausted::AtSource)
        .spawn(move |message: Message| {
            let work = work.clone();
            async move {
                work.handle(message).await;
                Ok::<(), Infallible>(())
            }
        })?;
    let source = source.decode(|raw: &RawMessage| {
        Message::from_payload(&raw.payload).ok_or_else(|| "a payload of another kind".into())
    });
    let intake = lanes.consume(source)?;
    Ok((lanes, intake))
}
