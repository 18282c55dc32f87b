//! One measurement: an empty server, its messages, and the clock.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Error;
use crate::contenders::{self, Id, Setup};
use crate::message::Traffic;
use crate::server::{Command, Server};
use crate::usage::Watch;
use crate::work::Work;

/// How often the server is asked whether all is done, once the handlers are.
const ASKED: Duration = Duration::from_millis(2);

/// What stopping a contender may take.
const END: Duration = Duration::from_secs(10);

/// What one measurement has shown.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Messages that were handled; leases that were held.
    pub messages: u64,
    /// For so long.
    pub seconds: f64,
    /// Processor time of this process, in seconds.
    pub cpu_seconds: f64,
    /// That of the server.
    pub server_seconds: f64,
    /// Whether time was up before all messages were handled.
    pub is_cut: bool,
    /// Messages out of their order, again, or beside another one of their key; leases that were lost.
    pub breaks: u64,
    /// What the server has done, the longest first.
    pub commands: Vec<Command>,
}

impl Sample {
    /// Messages per second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds
    }

    /// Processor time of this process in microseconds per message, or in seconds per million.
    pub fn cpu_per_million(&self) -> f64 {
        self.cpu_seconds / self.messages as f64 * 1e6
    }

    /// That of the server.
    pub fn server_per_million(&self) -> f64 {
        self.server_seconds / self.messages as f64 * 1e6
    }

    /// The share of one core that this process has taken.
    pub fn share(&self) -> f64 {
        self.cpu_seconds / self.seconds
    }

    /// That of the server.
    pub fn server_share(&self) -> f64 {
        self.server_seconds / self.seconds
    }
}

/// A runtime of its own, so that no task of a contender is left over for the next one.
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

/// Measures how one contender handles what is stored, and stops after so long.
pub async fn consume(
    server: &Server,
    id: Id,
    traffic: Traffic,
    workers: usize,
    limit: Duration,
) -> Result<Sample, Error> {
    server.clear().await?;
    let setup = Setup {
        url: server.url(),
        workers,
    };
    let mut contender = id.open(setup).await?;
    for chunk in traffic.chunks(contenders::CHUNK) {
        contender.store(&chunk).await?;
    }
    contender.prepare().await?;
    server.settle().await?;

    let work = Work::new(traffic, None);
    let watch = Watch::new(server.pid()?);
    let began = Instant::now();
    contender.begin(&work).await?;
    let confirmed = async {
        work.done().await;
        while !contender.is_confirmed(traffic.messages).await? {
            tokio::time::sleep(ASKED).await;
        }
        Ok::<(), Error>(())
    };
    let finished = tokio::time::timeout(limit, confirmed).await;
    let seconds = began.elapsed().as_secs_f64();
    let (cpu_seconds, server_seconds) = watch.read();
    let messages = work.ended();
    work.cut();
    let is_cut = match finished {
        Ok(confirmed) => confirmed.map(|()| false)?,
        Err(_) => true,
    };
    let commands = server.commands().await?;
    // What it has goes with the server's data anyway.
    let _ = tokio::time::timeout(END, contender.end()).await;
    Ok(Sample {
        messages,
        seconds,
        cpu_seconds,
        server_seconds,
        is_cut,
        breaks: work.breaks(),
        commands,
    })
}
