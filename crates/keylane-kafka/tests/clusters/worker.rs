//! A worker that is a process, and what sends messages to it.

use std::sync::Arc;
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::RawMessage;
use keylane::{OnExhausted, Retry};
use keylane_kafka::{KafkaSource, Producer, SendError};
use keylane_testkit::scenario::{boxed, by_key};
use testkit_processes::{Answer, Trial, Workers, task, told_to_stop};

use crate::brokers::TOPIC;

const KEYS: u64 = 12;
const WORKERS: usize = 3;

/// The session of a member.
const SESSION: Duration = Duration::from_secs(6);

/// How long a record is tried: shorter than the trial waits.
const TRIED: Duration = Duration::from_secs(10);

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

/// Sends records to these brokers, and starts members of a group.
pub(crate) fn trial(brokers: &str) -> Trial {
    let producer = Producer::builder(brokers).timeout(TRIED);
    let producer = Arc::new(producer.build().expect("a producer"));
    let send = move |key: u64, id: u64| {
        let producer = Arc::clone(&producer);
        async move {
            let message = RawMessage::new(id.to_string()).key(key.to_string());
            match producer.send(TOPIC, &message).await {
                Ok(_) => Answer::Accepted,
                Err(SendError::Refused { .. }) => Answer::Refused,
                Err(_) => Answer::Unknown,
            }
        }
    };
    let workers = Workers {
        count: WORKERS,
        test: "worker::worker",
        task: brokers.to_owned(),
    };
    Trial::start(KEYS, send, workers)
}

/// The worker: this program again. It leaves when its input ends.
#[test]
fn worker() {
    let Some((journal, brokers)) = task() else {
        return;
    };
    show_log();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let handler = move |message: RawMessage| {
            let journal = journal.clone();
            async move {
                let number = |bytes| std::str::from_utf8(bytes).ok()?.parse().ok();
                let key = message.key.as_deref().and_then(number).expect("a key");
                let id = number(&message.payload).expect("an id");
                // Kafka has no fencing tokens.
                let takes = Duration::from_millis(id % 7);
                journal.attempt(key, id, 0, takes).await;
                Ok(())
            }
        };
        let dispatcher = by_key()
            .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(100_000))
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(handler))
            .expect("a dispatcher");
        let source = KafkaSource::builder(brokers, "workers")
            .topic(TOPIC)
            .property("session.timeout.ms", SESSION.as_millis().to_string())
            .property("heartbeat.interval.ms", "500")
            .build()
            .expect("a source");
        let settings = IntakeSettings::new()
            .revoke_within(Duration::from_secs(1))
            .longest_pause(Duration::from_millis(500));
        let intake = dispatcher.consume_with(source, settings);
        let intake = intake.expect("an intake");
        told_to_stop().await;
        intake.stop().within(Duration::from_secs(5)).await;
    });
}
