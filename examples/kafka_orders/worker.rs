//! A worker of the demo: a process that handles orders. It can be killed at any point.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keylane::error::BoxError;
use keylane::source::RawMessage;
use keylane_kafka::{KafkaSource, Place};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{interval, sleep};

use crate::journal::{Entry, Handling, Journal};
use crate::member::{Member, Status};
use crate::{Failure, mounted, say};

/// How often it says how far it is.
const BEAT: Duration = Duration::from_millis(200);

/// After so long without a word from a worker, the group gives its partitions to others.
pub(crate) const SESSION: Duration = Duration::from_secs(4);

/// What a worker is told in the first line of its standard input. It works until the input ends, as it
/// does when the demo says so, or dies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) number: u32,
    pub(crate) brokers: String,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) work: Duration,
    pub(crate) journal: PathBuf,
}

/// What a worker says, each in a line of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It has begun, and this is where its console is.
    Ready(SocketAddr),
    /// How far it is.
    Status(Status),
}

pub(crate) async fn work() -> Result<(), Failure> {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let job = input.next_line().await?.ok_or("nothing was said to do")?;
    let job: Job = serde_json::from_str(&job)?;
    let journal = Arc::new(Journal::open(&job.journal)?);
    let source = KafkaSource::builder(&job.brokers, &job.group)
        .topic(&job.topic)
        .property("session.timeout.ms", SESSION.as_millis().to_string())
        .property("heartbeat.interval.ms", "500")
        .build()?;
    let (number, work) = (job.number, job.work);
    let mut member = Member::start(source, move |raw| {
        handle(raw, number, work, Arc::clone(&journal))
    })?;
    tell(&Word::Ready(mounted::serve(member.console()?).await?));
    let mut beat = interval(BEAT);
    loop {
        tokio::select! {
            line = input.next_line() => if line?.is_none() { break },
            _ = beat.tick() => tell(&Word::Status(member.status())),
        }
    }
    member.stop().await;
    Ok(())
}

async fn handle(
    raw: RawMessage,
    worker: u32,
    work: Duration,
    journal: Arc<Journal>,
) -> Result<(), BoxError> {
    let place = Place::of(&raw).ok_or("it comes from a topic")?;
    let order = serde_json::from_slice(&raw.payload)?;
    let one = Handling::new(worker, place.partition, place.offset, order);
    journal.write(&Entry::Start(one))?;
    sleep(work).await;
    journal.write(&Entry::End(one))?;
    Ok(())
}

fn tell(word: &Word) {
    say::line(serde_json::to_string(word).unwrap_or_default());
}
