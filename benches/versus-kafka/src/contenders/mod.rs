//! Who is compared, and how the process of each one runs.

mod keylane;
mod locks;
mod parallel;
mod plain;
mod tasks;

pub use parallel::Parallel;

use std::fmt;
use std::process::exit;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::task::Task;
use crate::work::Work;

/// A contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Id {
    /// keylane-kafka in front of a dispatcher.
    Keylane,
    /// rdkafka's consumer in a loop, with an empty handler: the ceiling.
    Plain,
    /// A stream of records with a lock for each key.
    Locks,
    /// A task for each record, without any order: what the machine allows.
    Tasks,
    /// Confluent's Parallel Consumer, on its own threads.
    Parallel,
    /// Its module for Reactor.
    ParallelReactor,
}

impl Id {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Keylane,
        Self::Plain,
        Self::Locks,
        Self::Tasks,
        Self::Parallel,
        Self::ParallelReactor,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keylane => "keylane",
            Self::Plain => "plain",
            Self::Locks => "locks",
            Self::Tasks => "tasks",
            Self::Parallel => "parallel",
            Self::ParallelReactor => "parallel-reactor",
        }
    }

    /// Whether it is a program in Java.
    pub fn is_java(self) -> bool {
        matches!(self, Self::Parallel | Self::ParallelReactor)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Runs a contender in Rust in this process until its task is done, prints the report, and ends the
/// process: how fast it would stop is not measured.
pub fn run(name: &str, task: &Task) -> Result<(), Error> {
    let work = Work::new(task)?;
    match name {
        "plain" => plain::run(task, &work)?,
        "keylane" => block_on(&work, keylane::run(task, &work))?,
        "tasks" => block_on(&work, tasks::run(task, &work))?,
        "locks" => block_on(&work, locks::run(task, &work))?,
        _ => return Err(format!("no such contender: {name}").into()),
    }
    Ok(())
}

fn block_on(work: &Work, run: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        work.prepare();
        run.await
    })
}

fn finish(work: &Work) -> ! {
    match serde_json::to_string(&work.report()) {
        Ok(report) => println!("{report}"),
        Err(error) => eprintln!("error: {error}"),
    }
    exit(0)
}
