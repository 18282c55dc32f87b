//! One measurement: a database, a queue, its messages, and the clock.

use std::time::{Duration, Instant};

use keylane_sql::sqlx::{Connection, PgConnection, query};
use serde::Serialize;
use testkit_servers::Postgres;

use crate::Error;
use crate::contenders::{self, Id, Queue, Setup};
use crate::work::Work;
use crate::workload::Workload;

/// How often the database is asked whether all is done, once the handlers are.
const ASKED: Duration = Duration::from_millis(2);

/// What stopping a queue may take.
const END: Duration = Duration::from_secs(10);

/// What one measurement has shown.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Messages per second.
    pub rate: f64,
    /// Messages that were handled.
    pub messages: u64,
    /// For so long.
    pub seconds: f64,
    /// Whether time was up before all were.
    pub is_cut: bool,
    /// Messages out of their order, again, or beside another one of their key.
    pub breaks: u64,
}

/// A runtime of its own, so that no task of a queue is left over for the next one.
///
/// # Panics
///
/// If the system gives it no threads.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads can be started")
}

/// Measures one queue at one workload, and stops after so long.
pub async fn measure(
    server: &Postgres,
    workload: &Workload,
    id: Id,
    limit: Duration,
) -> Result<Sample, Error> {
    let place = Place::new(server).await?;
    let setup = Setup {
        workers: workload.workers,
        keys: workload.traffic.keys,
    };
    let mut queue = id.open(&place.address, setup).await?;
    contenders::fill(queue.as_ref(), workload.traffic).await?;
    place.settle().await?;

    let work = Work::new(workload.traffic, workload.pause);
    let began = Instant::now();
    queue.begin(&work).await?;
    let confirmed = confirmed(queue.as_ref(), &work, workload.traffic.messages);
    let finished = tokio::time::timeout(limit, confirmed).await;
    let took = began.elapsed();
    let messages = work.ended();
    work.cut();
    let is_cut = match finished {
        Ok(confirmed) => confirmed.map(|()| false)?,
        Err(_) => true,
    };
    let breaks = work.breaks();
    stop(queue, place, server).await?;
    Ok(Sample {
        rate: messages as f64 / took.as_secs_f64(),
        messages,
        seconds: took.as_secs_f64(),
        is_cut,
        breaks,
    })
}

/// Returns when the last handler has ended, and the database knows it.
pub async fn confirmed(queue: &dyn Queue, work: &Work, messages: u64) -> Result<(), Error> {
    work.done().await;
    while !queue.is_confirmed(messages).await? {
        tokio::time::sleep(ASKED).await;
    }
    Ok(())
}

/// Stops the queue, and removes its database.
pub async fn stop(mut queue: Box<dyn Queue>, place: Place, server: &Postgres) -> Result<(), Error> {
    // Its database goes anyway.
    let _ = tokio::time::timeout(END, queue.end()).await;
    drop(queue);
    place.remove(server).await
}

/// A database of its own.
#[derive(Debug)]
pub struct Place {
    /// Its URL.
    pub address: String,
}

impl Place {
    /// An empty one.
    pub async fn new(server: &Postgres) -> Result<Self, Error> {
        let address = server.create_database().await?;
        Ok(Self { address })
    }

    /// What the server would do some time after the messages came: it counts the rows, and writes
    /// them to the disk. Otherwise it would do that in the middle of some measurement.
    pub async fn settle(&self) -> Result<(), Error> {
        let mut connection = PgConnection::connect(&self.address).await?;
        for statement in ["vacuum analyze", "checkpoint"] {
            query(statement).execute(&mut connection).await?;
        }
        connection.close().await?;
        Ok(())
    }

    async fn remove(self, server: &Postgres) -> Result<(), Error> {
        let name = self.address.rsplit('/').next().unwrap_or_default();
        let remove = format!("drop database {name} with (force)");
        server.execute("postgres", &remove).await?;
        Ok(())
    }
}
