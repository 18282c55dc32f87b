//! awa.
//!
//! It hands the jobs of a queue out in their order, and runs as many of them at once as the queue
//! has workers. So the order of a key is kept by queues with one worker each, and by a key that
//! always goes to the same one: a partitioned queue. Two processes that work on one queue would
//! run two of its jobs at once, so each has queues of its own.

use std::time::Duration;

use async_trait::async_trait;
use awa::{
    Client, InsertOpts, InsertParams, JobArgs, JobResult, PartitionedQueue, QueueConfig,
    QueueStorage, QueueStorageConfig,
};
use serde::{Deserialize, Serialize};
use sqlx_of_awa::PgPool;
use sqlx_of_awa::postgres::PgPoolOptions;

use super::{CONCURRENCY, Queue, Setup};
use crate::Error;
use crate::message::Message;
use crate::work::Work;

/// Queues with one worker each. Each takes a connection for itself, of which the server has 200.
const QUEUES: u64 = 128;

/// Connections of a worker besides.
const CONNECTIONS: usize = 12;

pub(super) struct Awa {
    pool: PgPool,
    address: String,
    store: QueueStorage,
    queue: PartitionedQueue,
    is_ordered: bool,
    workers: usize,
    running: Vec<Client>,
}

#[derive(Serialize, Deserialize, JobArgs)]
struct Job {
    message: Message,
}

impl Awa {
    pub(super) async fn open(address: &str, setup: Setup, is_ordered: bool) -> Result<Self, Error> {
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .connect(address)
            .await?;
        awa::migrations::run(&pool).await?;
        let queues = std::env::var("VERSUS_AWA_QUEUES");
        let queues = queues.ok().and_then(|queues| queues.parse().ok());
        let queues = match is_ordered {
            true => queues.unwrap_or(QUEUES).min(setup.keys),
            false => 1,
        };
        Ok(Self {
            pool,
            address: address.to_owned(),
            store: QueueStorage::new(QueueStorageConfig::default())?,
            queue: PartitionedQueue::new("jobs", queues as usize)?,
            is_ordered,
            workers: setup.workers,
            running: Vec::new(),
        })
    }

    fn client(&self, worker: usize, pool: PgPool, work: &Work) -> Result<Client, Error> {
        let queues: Vec<&String> = match self.is_ordered {
            true => self.queue.into_iter().collect(),
            false => vec![&self.queue.physical_queues()[0]; self.workers],
        };
        let mut client = Client::builder(pool);
        for queue in queues.into_iter().skip(worker).step_by(self.workers) {
            let config = QueueConfig {
                max_workers: if self.is_ordered {
                    1
                } else {
                    CONCURRENCY as u32
                },
                // As its own measurements have it: what the deadline would do costs a row per job.
                deadline_duration: Duration::ZERO,
                ..QueueConfig::default()
            };
            client = client.queue(queue, config);
        }
        let work = work.clone();
        let client = client.register::<Job, _, _>(move |job: Job, _| {
            let work = work.clone();
            async move {
                work.handle(job.message).await;
                Ok(JobResult::Completed)
            }
        });
        Ok(client.build()?)
    }
}

#[async_trait]
impl Queue for Awa {
    async fn enqueue(&self, messages: &[Message]) -> Result<(), Error> {
        let mut jobs = Vec::with_capacity(messages.len());
        for message in messages {
            jobs.push(InsertParams {
                kind: Job::kind().to_owned(),
                args: serde_json::to_value(Job { message: *message })?,
                opts: self
                    .queue
                    .route_opts_by_key(InsertOpts::default(), message.key.to_le_bytes()),
            });
        }
        self.store.enqueue_params_copy(&self.pool, &jobs).await?;
        Ok(())
    }

    async fn begin(&mut self, work: &Work) -> Result<(), Error> {
        let queues = self.queue.partitions().div_ceil(self.workers);
        for worker in 0..self.workers {
            let pool = PgPoolOptions::new().max_connections((queues + CONNECTIONS) as u32);
            let pool = pool.connect(&self.address).await?;
            // One key has one queue, and so one worker.
            if self.is_ordered && worker >= self.queue.partitions() {
                continue;
            }
            let client = self.client(worker, pool, work)?;
            client.start().await?;
            self.running.push(client);
        }
        Ok(())
    }

    async fn is_confirmed(&self, messages: u64) -> Result<bool, Error> {
        let done = "select count(*) from awa.terminal_jobs";
        let done: i64 = sqlx_of_awa::query_scalar(done)
            .fetch_one(&self.pool)
            .await?;
        Ok(done.unsigned_abs() >= messages)
    }

    async fn end(&mut self) {
        for client in self.running.drain(..) {
            client.shutdown(Duration::from_secs(1)).await;
        }
    }
}
