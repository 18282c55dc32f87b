//! A worker of the demo: a process that handles the orders of a list and of a stream. It can be killed or
//! stopped at any point.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane::consume::Intake;
use keylane::error::BoxError;
use keylane::source::{RawMessage, Source};
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_console::Console;
use keylane_redis::{ListBuilder, ListKey, ListQueue, Redis, StreamSource};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{interval, sleep};

use crate::order::Order;
use crate::sink::{Entry, Sink, What};
use crate::{Failure, mounted, say};

pub(crate) const LIST: &str = "orders-by-list";
pub(crate) const STREAM: &str = "orders-by-stream";
pub(crate) const PARTITIONS: u32 = 6;
pub(crate) const GROUP: &str = "billing";

/// After so long without a word from a worker, the others have what it had.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// How often a worker says how far it is.
const BEAT: Duration = Duration::from_millis(200);

/// How many handlers run at once, of each of the two.
const HANDLERS: usize = 32;

/// How long what is in flight may take at the end.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// What a worker is told in the first line of its standard input. It works until the input ends, as it
/// does when the demo says so, or dies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) number: u32,
    pub(crate) url: String,
    pub(crate) work: Duration,
}

/// What a worker says, each in a line of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It has begun, and this is where its console is.
    Ready(SocketAddr),
    /// How far it is.
    Status(Status),
}

/// How far a worker is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) process: u32,
    pub(crate) list: Side,
    pub(crate) stream: Side,
}

/// How far it is with one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Side {
    pub(crate) handled: u64,
    pub(crate) lanes: usize,
    pub(crate) in_flight: usize,
    pub(crate) held: usize,
    pub(crate) restarts: u64,
}

impl Status {
    pub(crate) fn held(&self) -> usize {
        self.list.held + self.stream.held
    }
}

/// The queue in the list, as the workers and the demo have it.
pub(crate) fn queue(redis: &Redis) -> ListBuilder {
    ListQueue::builder(redis, LIST)
        .key(ListKey::json("customer"))
        .lease(LEASE)
}

pub(crate) async fn work() -> Result<(), Failure> {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let line = input.next_line().await?.ok_or("there is no job")?;
    let job: Job = serde_json::from_str(&line)?;
    let redis = Redis::at(&job.url)?;
    let handler = Handler {
        sink: Sink::open(&job.url).await?,
        worker: job.number,
        work: job.work,
    };
    let source = StreamSource::builder(&redis, GROUP)
        .partitions(STREAM, PARTITIONS)
        .name(job.number.to_string());
    let list = Lanes::start(queue(&redis).build()?.source(), ListQueue::token, &handler)?;
    let stream = source.lease(LEASE).build()?;
    let streams = stream.watch();
    let stream = Lanes::start(stream, StreamSource::token, &handler)?;
    let console = Console::builder()
        .dispatcher(LIST, &list.dispatcher)
        .dispatcher(STREAM, &stream.dispatcher)
        .intake(LIST, &list.intake)
        .intake(STREAM, &stream.intake)
        .streams(STREAM, streams)
        .allow(mounted::ALLOWED)
        .without_token();
    say(&Word::Ready(mounted::serve(console.build()?).await?))?;
    let mut beat = interval(BEAT);
    loop {
        tokio::select! {
            _ = beat.tick() => say(&Word::Status(Status {
                process: std::process::id(),
                list: list.side(),
                stream: stream.side(),
            }))?,
            line = input.next_line() => if line?.is_none() {
                break;
            },
        }
    }
    list.stop().await;
    stream.stop().await;
    Ok(())
}

fn say(word: &Word) -> Result<(), Failure> {
    say::line(serde_json::to_string(word)?);
    Ok(())
}

/// What is done with an order.
#[derive(Clone)]
struct Handler {
    sink: Sink,
    worker: u32,
    work: Duration,
}

impl Handler {
    async fn handle(&self, message: &RawMessage, token: Option<u64>) -> Result<(), BoxError> {
        let order: Order = serde_json::from_slice(&message.payload)?;
        let entry = |what| Entry {
            what,
            order: order.clone(),
            token: token.unwrap_or(0),
            worker: self.worker,
        };
        self.write(entry(What::Start)).await?;
        sleep(self.work).await;
        self.write(entry(What::End)).await
    }

    async fn write(&self, entry: Entry) -> Result<(), BoxError> {
        match self.sink.write(&entry).await? {
            true => Ok(()),
            false => Err("another worker has this customer now".into()),
        }
    }
}

/// A dispatcher with a lane for each customer, and what feeds it.
struct Lanes {
    dispatcher: Dispatcher<Bytes, RawMessage, (), BoxError>,
    intake: Intake,
    handled: Arc<AtomicU64>,
}

impl Lanes {
    fn start<S: Source<Message = RawMessage>>(
        source: S,
        token: fn(&RawMessage) -> Option<u64>,
        handler: &Handler,
    ) -> Result<Self, Failure> {
        let handled = Arc::new(AtomicU64::new(0));
        let (handler, count) = (handler.clone(), Arc::clone(&handled));
        let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .concurrency(HANDLERS)
            .retry(Retry::fixed(Duration::from_millis(100)).max_attempts(100))
            .on_exhausted(OnExhausted::Halt)
            .spawn(move |message: RawMessage| {
                let (handler, count) = (handler.clone(), Arc::clone(&count));
                async move {
                    handler.handle(&message, token(&message)).await?;
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }
            })?;
        let intake = dispatcher.consume(source)?;
        Ok(Self {
            dispatcher,
            intake,
            handled,
        })
    }

    fn side(&self) -> Side {
        let (lanes, intake) = (self.dispatcher.stats(), self.intake.stats());
        Side {
            handled: self.handled.load(Ordering::Relaxed),
            lanes: lanes.lanes,
            in_flight: lanes.in_flight,
            held: intake.held,
            restarts: intake.restarts,
        }
    }

    /// Finishes what has begun, and gives the rest back.
    async fn stop(self) {
        self.intake.stop().within(STOP_WITHIN).await;
        self.dispatcher.drain().await;
    }
}
