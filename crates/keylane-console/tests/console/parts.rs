//! The streams of Redis and the partitions of Kafka, on real servers.

use std::net::SocketAddr;

use keylane::consume::Intake;
use keylane::source::{RawMessage, Source};
use keylane::{Bytes, Dispatcher, OnExhausted};
use keylane_console::Console;
use keylane_kafka::{KafkaSource, Producer};
use keylane_redis::{ListQueue, Redis, StreamSink, StreamSource};
use keylane_testkit::Gate;
use serde_json::{Value, json};
use testkit_browser::{Browser, until};
use testkit_servers::{Kafka, RedisKind};
use tokio::runtime::Runtime;

use crate::served::{Stream, serve};

type Orders = Dispatcher<Bytes, RawMessage, (), String>;

/// The first of `ann` waits at a gate. The others are done.
fn consumed<S>(source: S, gate: &Gate) -> (Orders, Intake)
where
    S: Source<Message = RawMessage>,
{
    let gate = gate.clone();
    let orders = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(move |order: RawMessage| {
            let gate = gate.clone();
            async move {
                if order.payload == "slow" {
                    gate.pass().await;
                }
                Ok(())
            }
        })
        .unwrap();
    let intake = orders.consume(source).unwrap();
    (orders, intake)
}

fn messages() -> [RawMessage; 4] {
    let message = |key: &'static str, payload: &'static str| RawMessage::new(payload).key(key);
    [
        message("ann", "slow"),
        message("ann", "behind it"),
        message("bob", "done"),
        message("bob", "done, too"),
    ]
}

/// Waits until the feed shows a part like this.
fn until_shown(feed: &mut Stream, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let part = |data: &Value| {
        let parts = data["body"]["intakes"][0]["parts"].as_array()?.iter();
        { parts }.find(|part| part["name"] == name).cloned()
    };
    let data = feed.until(|data| part(data).is_some_and(|part| is_so(&part)));
    part(&data).unwrap()
}

/// Two of four are done, and two are held, and it is this far behind. Then all are done.
fn is_shown(address: SocketAddr, gate: &Gate, name: &str, behind: u64) -> [String; 2] {
    let mut feed = Stream::open(address, "/feed", None);
    let part = until_shown(&mut feed, name, |part| {
        part["beyond"] == 2 && part["lag"] == behind
    });
    assert_eq!(
        (&part["held"], &part["held_by"]["key"]),
        (&json!(2), &json!("ann"))
    );
    assert_eq!(
        (&part["trouble"], &part["is_paused"]),
        (&Value::Null, &json!(false))
    );
    let first = part["frontier"].as_str().unwrap().to_owned();

    let browser = Browser::start();
    browser.open(&format!("http://{address}/#sources"));
    let row = format!(
        "Array.from(document.querySelectorAll('.lags tbody tr'), (row) => row.textContent) \
         .find((text) => text.includes('{name}'))"
    );
    browser.until(&format!("{row}?.includes('{first}')"));
    browser.until(&format!("{row}?.includes('held back by ann')"));

    gate.open();
    let part = until_shown(&mut feed, name, |part| {
        (&part["held"], &part["lag"]) == (&json!(0), &json!(0))
    });
    assert_eq!((&part["beyond"], part.get("held_by")), (&json!(0), None));
    let last = part["frontier"].as_str().unwrap().to_owned();
    browser.until(&format!("{row}?.includes('{last}')"));
    [first, last]
}

#[test]
fn the_streams_of_redis_are_shown_with_frontier_and_lag() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(testkit_servers::Redis::start(RedisKind::Redis7));
    let server = server.unwrap();
    let redis = Redis::at(&server.url()).unwrap();
    let sink = StreamSink::new(&redis, "orders").unwrap();
    runtime.block_on(sink.push_all(&messages())).unwrap();
    // A list, and so no stream.
    let list = ListQueue::builder(&redis, "broken").build().unwrap();
    let element = RawMessage::new("x").key("ann");
    runtime.block_on(list.push(&element)).unwrap();
    let source = StreamSource::builder(&redis, "billing").streams(["orders", "broken"]);
    let source = source.build().unwrap();
    let watch = source.watch();
    let gate = Gate::new();
    let entered = runtime.enter();
    let (orders, intake) = consumed(source, &gate);
    let console = Console::builder()
        .dispatcher("orders", &orders)
        .intake("redis", &intake)
        .streams("redis", watch);
    drop(entered);

    let address = serve(&runtime, console);
    // Two are pending.
    let [first, last] = is_shown(address, &gate, "orders", 2);
    // Ids of entries, with the time of the server.
    let millis = |id: &str| id.split_once('-').unwrap().0.parse::<u64>().unwrap();
    assert!(
        millis(&first) > 1_700_000_000_000 && first < last,
        "{first} {last}"
    );
    let mut feed = Stream::open(address, "/feed", None);
    let part = until_shown(&mut feed, "broken", |part| part["trouble"].is_string());
    let why = part["trouble"].as_str().unwrap();
    assert!(why.contains("WRONGTYPE"), "{why}");
    assert_eq!(
        (&part["frontier"], &part["lag"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(part["held"], 0);
    runtime.block_on(async {
        drop(intake);
        orders.drain().await;
    });
}

#[test]
fn the_partitions_of_kafka_are_shown_with_frontier_and_lag() {
    let runtime = Runtime::new().unwrap();
    let kafka = Kafka::builder().property("auto.create.topics.enable", "true");
    let kafka = runtime.block_on(kafka.start()).unwrap();
    let brokers = kafka.bootstrap();
    let producer = Producer::builder(&brokers).build().unwrap();
    for order in messages() {
        // The broker makes the topic at the first one.
        until("it is written", || {
            runtime.block_on(producer.send("orders", &order)).is_ok()
        });
    }
    let source = KafkaSource::builder(&brokers, "billing").topic("orders");
    let source = source.build().unwrap();
    let control = source.control();
    let gate = Gate::new();
    let entered = runtime.enter();
    let (orders, intake) = consumed(source, &gate);
    let console = Console::builder()
        .dispatcher("orders", &orders)
        .intake("kafka", &intake)
        .partitions("kafka", control);
    drop(entered);

    let address = serve(&runtime, console);
    // From the committed offset on.
    let shown = is_shown(address, &gate, "orders/0", 4);
    assert_eq!(shown, ["0", "4"]);
    runtime.block_on(async {
        drop(intake);
        orders.drain().await;
    });
}
