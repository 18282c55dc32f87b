//! apalis-redis.

use apalis::prelude::{TaskSink, WorkerBuilder, WorkerBuilderExt};
use apalis_redis::{Config, RedisStorage};
use async_trait::async_trait;
use futures::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{Client, cmd, pipe};
use tokio::task::JoinHandle;

use super::{CONCURRENCY, Contender, Setup};
use crate::Error;
use crate::message::Message;
use crate::work::Work;

const QUEUE: &str = "messages";

/// Tasks of one fetch, as in its own benchmarks, if it is tuned. With locks, taking so many at once lasts
/// longer than its connection waits for an answer, and the worker ends.
const BATCH: usize = 1_000;

type Storage = RedisStorage<String>;

pub(super) struct Apalis {
    connection: MultiplexedConnection,
    config: Config,
    producer: Storage,
    workers: Vec<Storage>,
    running: Vec<JoinHandle<()>>,
}

impl Apalis {
    /// With its defaults: batches of 10, and a lock for each task. Or `is_tuned`: in larger batches, without
    /// locks, which its documentation calls of no use to tasks that are shorter than a heartbeat, and
    /// without events.
    pub(super) async fn open(setup: &Setup, is_tuned: bool) -> Result<Self, Error> {
        let config = Config::default().queue(QUEUE);
        let config = match is_tuned {
            true => {
                let config = config.batch_size(BATCH).lock_tasks(false);
                config.emit_events(false)
            }
            false => config,
        };
        let storage = async || {
            let connection = apalis_redis::connect(setup.url.as_str()).await?;
            Ok::<_, Error>(Storage::new(connection).with_config(config.clone()))
        };
        let mut workers = Vec::new();
        for _ in 0..setup.workers {
            workers.push(storage().await?);
        }
        let client = Client::open(setup.url.as_str())?;
        Ok(Self {
            connection: client.get_multiplexed_async_connection().await?,
            producer: storage().await?,
            config,
            workers,
            running: Vec::new(),
        })
    }
}

#[async_trait]
impl Contender for Apalis {
    async fn store(&mut self, messages: &[Message]) -> Result<(), Error> {
        let payloads = messages.iter().map(|message| message.payload());
        self.producer.push_bulk(payloads.collect()).await?;
        Ok(())
    }

    /// It stores all tasks as scheduled ones, and the first fetch makes all that are due ready in one
    /// command, which fails with more than some 8,000. So this is done for it here, in the same way and
    /// off the clock.
    async fn prepare(&mut self) -> Result<(), Error> {
        const AT_ONCE: isize = 1_000;
        let scheduled = self.config.scheduled_jobs_set();
        let ready = self.config.active_jobs_list();
        loop {
            let mut next = cmd("ZRANGE");
            next.arg(&scheduled).arg(0).arg(AT_ONCE - 1);
            let ids: Vec<String> = next.query_async(&mut self.connection).await?;
            if ids.is_empty() {
                return Ok(());
            }
            let mut promote = pipe();
            promote.cmd("RPUSH").arg(&ready).arg(&ids).ignore();
            promote.cmd("ZREM").arg(&scheduled).arg(&ids).ignore();
            promote.exec_async(&mut self.connection).await?;
        }
    }

    async fn begin(&mut self, work: &Work) -> Result<(), Error> {
        for (number, storage) in self.workers.drain(..).enumerate() {
            let work = work.clone();
            let worker = WorkerBuilder::new(format!("worker-{number}"))
                .backend(storage)
                .concurrency(CONCURRENCY)
                .build(move |payload: String| {
                    let work = work.clone();
                    async move {
                        let message = Message::from_payload(payload.as_bytes());
                        work.handle(message.ok_or("a payload of another kind")?)
                            .await;
                        Ok::<(), Error>(())
                    }
                });
            let run = worker.run().map(|ended| {
                if let Err(error) = ended {
                    eprintln!("apalis-redis has stopped: {error}");
                }
            });
            self.running.push(tokio::spawn(run));
        }
        Ok(())
    }

    async fn is_confirmed(&mut self, messages: u64) -> Result<bool, Error> {
        let mut done = cmd("SCARD");
        done.arg(self.config.done_jobs_set());
        let done: u64 = done.query_async(&mut self.connection).await?;
        Ok(done >= messages)
    }

    async fn end(&mut self) {
        for task in self.running.drain(..) {
            task.abort();
        }
    }
}
