//! Graphile Worker.
//!
//! Jobs of a named queue run one after the other, whichever worker has them. It takes them by
//! priority and time, and by nothing else: jobs of one time come in any order, so each gets a time
//! of its own, a microsecond after the last one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker,
    WorkerContext, WorkerOptions,
};
use keylane_sql::sqlx::postgres::PgPoolOptions;
use keylane_sql::sqlx::{self, PgPool};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::{CONCURRENCY, Queue, Setup};
use crate::Error;
use crate::message::Message;
use crate::work::Work;

/// Named queues that the keys are spread over. Each look for jobs locks all queues that are free: one
/// worker is the slower the more of them there are, and several get in each other's way if there
/// are few.
const QUEUES: [u64; 2] = [1_024, 10_000];

/// Jobs that a worker takes at once.
const TAKEN: usize = 2_048;

/// How often a worker looks for jobs, and how long it collects what is done.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) struct Graphile {
    pool: PgPool,
    address: String,
    workers: usize,
    /// `None`: without named queues.
    queues: Option<u64>,
    base: DateTime<Utc>,
    enqueued: AtomicI64,
    running: Vec<Arc<Worker>>,
    tasks: JoinSet<()>,
}

#[derive(Serialize, Deserialize)]
struct Job(Message);

impl TaskHandler for Job {
    const IDENTIFIER: &'static str = "job";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let work = context.get_ext::<Work>().expect("it was set");
        work.handle(self.0).await;
        Ok::<(), String>(())
    }
}

impl Graphile {
    pub(super) async fn open(address: &str, setup: Setup, is_ordered: bool) -> Result<Self, Error> {
        let pool = PgPool::connect(address).await?;
        let usual = QUEUES[usize::from(setup.workers > 1)];
        let queues = std::env::var("VERSUS_GRAPHILE_QUEUES");
        let queues = queues.ok().and_then(|queues| queues.parse().ok());
        let graphile = Self {
            pool,
            address: address.to_owned(),
            workers: setup.workers,
            queues: is_ordered.then(|| queues.unwrap_or(usual).min(setup.keys)),
            base: Utc::now() - TimeDelta::hours(24),
            enqueued: AtomicI64::new(0),
            running: Vec::new(),
            tasks: JoinSet::new(),
        };
        let first = WorkerOptions::default().pg_pool(graphile.pool.clone());
        // Makes the tables, and the name of the job.
        first.define_job::<Job>().init().await?;
        Ok(graphile)
    }

    fn job(&self, message: &Message) -> Result<RawJobSpec, Error> {
        let mut spec = JobSpec::builder();
        if let Some(queues) = self.queues {
            spec = spec.queue_name(format!("queue-{}", u64::from(message.key) % queues));
        }
        let later = self.enqueued.fetch_add(1, Ordering::Relaxed);
        Ok(RawJobSpec {
            identifier: Job::IDENTIFIER.to_owned(),
            payload: serde_json::to_value(message)?,
            spec: spec
                .run_at(self.base + TimeDelta::microseconds(later))
                .build(),
        })
    }
}

#[async_trait]
impl Queue for Graphile {
    async fn enqueue(&self, messages: &[Message]) -> Result<(), Error> {
        let jobs: Result<Vec<_>, Error> = messages.iter().map(|each| self.job(each)).collect();
        let utils = graphile_worker::WorkerUtils::new(self.pool.clone(), "graphile_worker");
        utils.add_raw_jobs(&jobs?).await?;
        Ok(())
    }

    async fn begin(&mut self, work: &Work) -> Result<(), Error> {
        for _ in 0..self.workers {
            let pool = PgPoolOptions::new().max_connections(20);
            let pool = pool.connect(&self.address).await?;
            let worker = WorkerOptions::default()
                .pg_pool(pool)
                .concurrency(CONCURRENCY)
                .poll_interval(PAUSE)
                .complete_job_batch_delay(PAUSE)
                .local_queue(LocalQueueConfig::default().with_size(TAKEN))
                .listen_os_shutdown_signals(false)
                .add_extension(work.clone())
                .define_job::<Job>();
            let worker = Arc::new(worker.init().await?);
            self.running.push(Arc::clone(&worker));
            self.tasks.spawn(async move {
                if let Err(error) = worker.run().await {
                    eprintln!("graphile: {error}");
                }
            });
        }
        Ok(())
    }

    async fn is_confirmed(&self, _: u64) -> Result<bool, Error> {
        let left = "select not exists (select from graphile_worker._private_jobs)";
        Ok(sqlx::query_scalar(left).fetch_one(&self.pool).await?)
    }

    async fn end(&mut self) {
        for worker in self.running.drain(..) {
            worker.request_shutdown();
        }
        while self.tasks.join_next().await.is_some() {}
    }
}
