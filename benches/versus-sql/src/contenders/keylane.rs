//! keylane-sql.

use std::convert::Infallible;

use async_trait::async_trait;
use keylane::consume::Intake;
use keylane::source::{RawMessage, Source};
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::NewMessage;
use keylane_sql::sqlx::{self, PgPool};
use keylane_sql::{Database, Settings, SqlInbox, Tables};

use super::{CONCURRENCY, Queue, Setup};
use crate::Error;
use crate::message::Message;
use crate::work::Work;

type Lanes = Dispatcher<u32, Message, (), Infallible>;

pub(super) struct Keylane {
    pool: PgPool,
    producer: SqlInbox,
    workers: Vec<SqlInbox>,
    running: Vec<(Lanes, Intake)>,
}

impl Keylane {
    pub(super) async fn open(address: &str, setup: Setup) -> Result<Self, Error> {
        let tables = Tables::new();
        let pool = PgPool::connect(address).await?;
        let database = Database::postgres(pool.clone());
        database.migrate(&tables).await?;
        let producer = SqlInbox::open(&database, &tables, Settings::new()).await?;
        let mut workers = Vec::new();
        for _ in 0..setup.workers {
            let database = Database::connect(address).await?;
            workers.push(SqlInbox::open(&database, &tables, Settings::new()).await?);
        }
        Ok(Self {
            pool,
            producer,
            workers,
            running: Vec::new(),
        })
    }
}

#[async_trait]
impl Queue for Keylane {
    async fn enqueue(&self, messages: &[Message]) -> Result<(), Error> {
        let messages = messages
            .iter()
            .map(|message| NewMessage::new(message.key.to_string(), message.to_bytes().to_vec()));
        self.producer.inbox().accept_many(messages).await?;
        Ok(())
    }

    async fn begin(&mut self, work: &Work) -> Result<(), Error> {
        for inbox in &self.workers {
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
            let source = inbox
                .source()
                .decode(|raw: &RawMessage| Ok(Message::from_bytes(&raw.payload)));
            let intake = lanes.consume(source)?;
            self.running.push((lanes, intake));
        }
        Ok(())
    }

    async fn is_confirmed(&self, _: u64) -> Result<bool, Error> {
        let left = "select not exists (select from keylane_messages)";
        Ok(sqlx::query_scalar(left).fetch_one(&self.pool).await?)
    }

    async fn end(&mut self) {
        for (lanes, intake) in self.running.drain(..) {
            intake.stop().await;
            lanes.drain().await;
        }
    }
}
