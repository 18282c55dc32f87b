//! A queue without order, as one would write it by hand: the ceiling.
//!
//! A worker claims many rows with one statement, while the handlers of the last ones run, and
//! deletes what is done, many rows with one statement. Claims need not be durable: those that a
//! crash of the server takes back are claimed again. Nothing looks after the claims of a worker
//! that dies, so a real queue does a little more.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use keylane_sql::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use keylane_sql::sqlx::{self, PgPool};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::{CONCURRENCY, Queue, Setup};
use crate::Error;
use crate::message::Message;
use crate::work::Work;

/// Rows of one claim, and of one deletion.
const BATCH: usize = 1_024;

/// How long a worker waits that has found nothing.
const POLL: Duration = Duration::from_millis(5);

const TABLE: &str = "
    create table queue (
        id bigint generated always as identity primary key,
        payload bytea not null,
        worker integer
    )
";

const INDEX: &str = "create index queue_free on queue (id) where worker is null";

const INSERT: &str = "insert into queue (payload) select * from unnest($1::bytea[])";

const CLAIM: &str = "
    with free as (
        select id from queue where worker is null order by id limit $2 for update skip locked
    )
    update queue set worker = $1 from free where queue.id = free.id
    returning queue.id, queue.payload
";

const DELETE: &str = "delete from queue where id = any($1)";

pub(super) struct SkipLocked {
    pool: PgPool,
    workers: Vec<Pools>,
    running: JoinSet<()>,
}

#[derive(Clone)]
struct Pools {
    claims: PgPool,
    deletions: PgPool,
}

impl SkipLocked {
    pub(super) async fn open(address: &str, setup: Setup) -> Result<Self, Error> {
        let pool = PgPool::connect(address).await?;
        for statement in [TABLE, INDEX] {
            sqlx::query(statement).execute(&pool).await?;
        }
        let options: PgConnectOptions = address.parse()?;
        let relaxed = options.clone().options([("synchronous_commit", "off")]);
        let one = || PgPoolOptions::new().max_connections(1);
        let mut workers = Vec::new();
        for _ in 0..setup.workers {
            workers.push(Pools {
                claims: one().connect_with(relaxed.clone()).await?,
                deletions: one().connect_with(options.clone()).await?,
            });
        }
        Ok(Self {
            pool,
            workers,
            running: JoinSet::new(),
        })
    }
}

#[async_trait]
impl Queue for SkipLocked {
    async fn enqueue(&self, messages: &[Message]) -> Result<(), Error> {
        let payloads: Vec<Vec<u8>> = messages
            .iter()
            .map(|message| message.to_bytes().to_vec())
            .collect();
        sqlx::query(INSERT)
            .bind(payloads)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn begin(&mut self, work: &Work) -> Result<(), Error> {
        for (worker, pools) in (1..).zip(&self.workers) {
            // As many wait as one claim brings, and the next claim is on its way by then.
            let (ready, waiting) = mpsc::channel(BATCH);
            let (done, ended) = mpsc::unbounded_channel();
            self.running
                .spawn(claim(pools.claims.clone(), worker, ready));
            self.running.spawn(handle(waiting, done, work.clone()));
            self.running.spawn(delete(pools.deletions.clone(), ended));
        }
        Ok(())
    }

    async fn is_confirmed(&self, _: u64) -> Result<bool, Error> {
        let left = "select not exists (select from queue)";
        Ok(sqlx::query_scalar(left).fetch_one(&self.pool).await?)
    }

    async fn end(&mut self) {
        self.running.shutdown().await;
    }
}

async fn claim(pool: PgPool, worker: i32, ready: mpsc::Sender<(i64, Message)>) {
    loop {
        let claimed: Vec<(i64, Vec<u8>)> = sqlx::query_as(CLAIM)
            .bind(worker)
            .bind(BATCH as i64)
            .fetch_all(&pool)
            .await
            .expect("the server runs");
        if claimed.is_empty() {
            tokio::time::sleep(POLL).await;
        }
        for (id, payload) in claimed {
            let sent = ready.send((id, Message::from_bytes(&payload))).await;
            if sent.is_err() {
                return;
            }
        }
    }
}

async fn handle(
    mut waiting: mpsc::Receiver<(i64, Message)>,
    done: mpsc::UnboundedSender<i64>,
    work: Work,
) {
    let permits = Arc::new(Semaphore::new(CONCURRENCY));
    while let Some((id, message)) = waiting.recv().await {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let permit = permit.expect("it is never closed");
        let (work, done) = (work.clone(), done.clone());
        tokio::spawn(async move {
            work.handle(message).await;
            drop(permit);
            // At the end of a measurement the receiver is gone.
            let _ = done.send(id);
        });
    }
}

async fn delete(pool: PgPool, mut ended: mpsc::UnboundedReceiver<i64>) {
    let mut ids = Vec::with_capacity(BATCH);
    while ended.recv_many(&mut ids, BATCH).await > 0 {
        sqlx::query(DELETE)
            .bind(&ids)
            .execute(&pool)
            .await
            .expect("the server runs");
        ids.clear();
    }
}
