//! A worker that is a process, and what sends messages to it.

use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::{RawMessage, Source};
use keylane::{OnExhausted, Retry};
use keylane_redis::{
    ErrorKind, ListQueue, Redis, RedisError, StreamSink, StreamSource, partition_of,
};
use keylane_testkit::scenario::{boxed, by_key, repeats};
use testkit_processes::{Answer, Journal, Trial, Workers, task, told_to_stop};

const KEYS: u64 = 12;
const WORKERS: usize = 3;
const PARTITIONS: u32 = 6;

/// After this time another worker takes over from one that is gone.
const LEASE: Duration = Duration::from_secs(2);

/// How long a call may take that a lost server does not answer.
const CALL: Duration = Duration::from_secs(3);

/// How often a replica takes over, or a slot moves: three times unless set.
pub(crate) fn failovers() -> u64 {
    repeats("KEYLANE_FAILOVERS", 3)
}

/// Shows the logs of the source with `RUST_LOG=keylane`, if the test fails.
pub(crate) fn show_log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter);
    // Another test may have done so.
    let _ = subscriber
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}

/// What the messages are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    List,
    Streams,
}

impl Kind {
    /// A key of the server that has messages of this key.
    pub(crate) fn place_of(self, key: u64) -> String {
        match self {
            Self::List => LIST.to_owned(),
            Self::Streams => {
                let partition = partition_of(key.to_string().as_bytes(), PARTITIONS);
                format!("{STREAM}:{partition}")
            }
        }
    }
}

const LIST: &str = "{shop}orders";
const STREAM: &str = "orders";

/// A server by its address, or a cluster by those of several nodes.
fn redis(addresses: &str) -> Redis {
    let redis = match addresses.contains(',') {
        true => Redis::cluster(addresses.split(',')),
        false => Redis::at(addresses),
    };
    redis.unwrap().response_timeout(CALL).connect_timeout(CALL)
}

fn queue(redis: &Redis) -> ListQueue {
    let builder = ListQueue::builder(redis, LIST).lease(LEASE);
    builder.build().unwrap()
}

/// Sends messages to the servers at these addresses, and starts workers on them.
pub(crate) fn trial(kind: Kind, addresses: &str) -> Trial {
    let workers = Workers {
        count: WORKERS,
        test: "worker::worker",
        task: format!("{kind:?} {addresses}"),
    };
    let message = |key: u64, id: u64| RawMessage::new(id.to_string()).key(key.to_string());
    let redis = redis(addresses);
    match kind {
        Kind::List => {
            let queue = queue(&redis);
            let send = move |key, id| {
                let queue = queue.clone();
                async move { answer(queue.push(&message(key, id)).await) }
            };
            Trial::start(KEYS, send, workers)
        }
        Kind::Streams => {
            let sink = StreamSink::partitions(&redis, STREAM, PARTITIONS).unwrap();
            let send = move |key, id| {
                let sink = sink.clone();
                async move { answer(sink.push(&message(key, id)).await) }
            };
            Trial::start(KEYS, send, workers)
        }
    }
}

fn answer(pushed: Result<(), RedisError>) -> Answer {
    match pushed {
        Ok(()) => Answer::Accepted,
        // The server has said so.
        Err(error) if error.kind() == ErrorKind::Unable => Answer::Refused,
        Err(_) => Answer::Unknown,
    }
}

/// The worker: this program again. It leaves when its input ends.
#[test]
fn worker() {
    let Some((journal, task)) = task() else {
        return;
    };
    show_log();
    let (kind, addresses) = task.split_once(' ').unwrap();
    let redis = redis(addresses);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        if kind == format!("{:?}", Kind::List) {
            let source = queue(&redis).source();
            work(journal, source, ListQueue::token).await;
        } else {
            let builder = StreamSource::builder(&redis, "workers").lease(LEASE);
            let source = builder.partitions(STREAM, PARTITIONS).build().unwrap();
            work(journal, source, StreamSource::token).await;
        }
    });
}

async fn work(
    journal: Journal,
    source: impl Source<Message = RawMessage>,
    token: fn(&RawMessage) -> Option<u64>,
) {
    let handler = move |message: RawMessage| {
        let journal = journal.clone();
        async move {
            let number = |bytes| std::str::from_utf8(bytes).unwrap().parse().unwrap();
            let key = number(message.key.as_deref().unwrap());
            let (id, token) = (number(&message.payload), token(&message).unwrap());
            let takes = Duration::from_millis(id % 7);
            journal.attempt(key, id, token, takes).await;
            Ok(())
        }
    };
    // A message may be in flight at several faults.
    let dispatcher = by_key()
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(100_000))
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(handler))
        .unwrap();
    let settings = IntakeSettings::new()
        .held(64)
        .longest_pause(Duration::from_millis(500));
    let intake = dispatcher.consume_with(source, settings).unwrap();
    told_to_stop().await;
    intake.stop().within(Duration::from_secs(5)).await;
}
