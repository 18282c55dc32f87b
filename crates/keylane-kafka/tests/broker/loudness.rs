//! What is logged while a broker is down.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_kafka::KafkaSource;
use keylane_testkit::scenario::{boxed, by_key};
use testkit_servers::Kafka;
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::stage::{Stage, until};
use crate::support::{Topic, show_log};

/// The warnings and errors of this program.
static LOUD: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

/// Keeps warnings and errors.
pub(crate) struct Loud;

impl<S: Subscriber> Layer<S> for Loud {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if level <= Level::WARN {
            let mut line = Line::default();
            event.record(&mut line);
            LOUD.lock().unwrap().push((level, line.0));
        }
    }
}

/// Returns the warnings and errors with this text.
pub(crate) fn logged(text: &str) -> Vec<(Level, String)> {
    let loud = LOUD.lock().unwrap();
    let of_text = loud.iter().filter(|(_, line)| line.contains(text));
    of_text.cloned().collect()
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

/// The client tries to connect several times a second, and reports each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_down_is_no_error_and_is_reported_once() {
    show_log();
    let kafka = Arc::new(Kafka::start().await.unwrap());
    let port = kafka.bootstrap().replace("127.0.0.1", "");
    let stage = Stage::of(Topic::new(Arc::clone(&kafka), 2).await);
    let member = stage.member();
    stage.publish(0..10).await;
    stage.nothing_left().await;
    kafka.kill(0).await.unwrap();
    until("the broker is missed", async || !logged(&port).is_empty()).await;
    sleep(Duration::from_secs(6)).await;
    let lines = logged(&port);
    let mut counts = BTreeMap::new();
    for (level, line) in &lines {
        assert_eq!(*level, Level::WARN, "{line}");
        let (_, line) = line.split_once("message=").unwrap();
        let kind = line.split(" (after ").next().unwrap();
        *counts.entry(kind.to_owned()).or_insert(0) += 1;
    }
    assert!(counts.values().all(|count| *count == 1), "{counts:#?}");
    kafka.start_again(0).await.unwrap();
    stage.publish(0..10).await;
    stage.nothing_left().await;
    member.stop().await;
}

/// The source makes a new client at each try.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_without_a_broker_is_reported_once() {
    show_log();
    let source = KafkaSource::builder("127.0.0.1:9", "loud").topic("orders");
    let consumer = by_key()
        .on_exhausted(OnExhausted::Halt)
        .spawn(boxed(|_: RawMessage| async { Ok(()) }))
        .expect("a consumer");
    let intake = consumer.consume(source.build().expect("a source"));
    let intake = intake.expect("an intake");
    until("it has tried twice", async || intake.stats().failures >= 2).await;
    let lines = logged("127.0.0.1:9");
    let reported = lines
        .iter()
        .filter(|(_, line)| line.contains("reports an error"));
    let reported: Vec<_> = reported.collect();
    assert_eq!(reported.len(), 1, "{reported:#?}");
    intake.stop().await;
}

/// The source connects again when there is something to do, and so does the producer of its letters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_that_the_broker_closes_is_no_error() {
    show_log();
    let kafka = Kafka::builder().property("connections.max.idle.ms", "1000");
    let kafka = Arc::new(kafka.start().await.expect("a broker"));
    let port = kafka.bootstrap().replace("127.0.0.1", "");
    let stage = Stage::of(Topic::new(kafka, 1).await);
    let letters = stage.topic.beside(".dead", &[]).await;
    let consumer = by_key()
        .on_exhausted(OnExhausted::AtSource)
        .spawn(boxed(|_: RawMessage| async { Err("never".into()) }))
        .expect("a consumer");
    let source = stage.topic.builder().dead_letters(&letters.name).build();
    let intake = consumer.consume(source.expect("a source"));
    let intake = intake.expect("an intake");
    for count in 1..=3 {
        stage.publish([1]).await;
        until("the letter is kept", async || {
            intake.stats().dead_lettered == count
        })
        .await;
        sleep(Duration::from_secs(4)).await;
    }
    let stats = intake.stop().await;
    assert_eq!(stats.restarts, 0);
    let lines = logged(&port);
    let about_settings = |line: &str| line.contains("replication.factor");
    let lines: Vec<_> = lines
        .iter()
        .filter(|(_, line)| !about_settings(line))
        .collect();
    assert!(lines.is_empty(), "{lines:?}");
    // The error of a client without connections does not name a broker.
    assert_eq!(logged("AllBrokersDown"), []);
    assert_eq!(consumer.stats().letter_failures, 0);
}
