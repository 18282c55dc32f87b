//! Who holds a part of a source back: on the page of the sources, and on the page of the lane.

use std::net::SocketAddr;

use keylane::source::{Features, RawMessage};
use keylane::{Dispatcher, OnExhausted};
use keylane_console::{Builder, Console, SourcePart};
use keylane_kafka::{KafkaSource, Producer};
use keylane_testkit::Gate;
use keylane_testkit::reference::ReferenceServer;
use serde_json::{Value, json};
use testkit_browser::{Browser, Request, until};
use testkit_servers::Kafka;
use tokio::runtime::Runtime;

use crate::page::{is_named, look};
use crate::served::{Stream, serve};

type Orders = Dispatcher<keylane::Bytes, RawMessage, (), &'static str>;

/// `waits` passes the gate, `fails` fails, and all else is done.
fn orders(gate: &Gate) -> Orders {
    let gate = gate.clone();
    Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(move |raw: RawMessage| {
            let gate = gate.clone();
            async move {
                match &*raw.payload {
                    b"waits" => gate.pass().await,
                    b"fails" => return Err("declined"),
                    _ => {}
                }
                Ok(())
            }
        })
        .unwrap()
}

/// The only partition of a server, up to its first message that has not settled. Each message is
/// handed over once, in order.
fn partition(server: &ReferenceServer) -> SourcePart {
    let entries = server.entries();
    let settled = entries.iter().take_while(|it| it.standing.is_settled());
    let frontier = settled.count() as u64;
    SourcePart {
        name: "orders/0".to_owned(),
        frontier: Some(frontier.to_string()),
        front: Some(format!("0:{frontier}#{}", frontier + 1)),
        ..SourcePart::default()
    }
}

/// The key of the lane that holds the n-th part back.
fn held_by(data: &Value, part: usize) -> &Value {
    &data["body"]["intakes"][0]["parts"][part]["held_by"]["key"]
}

/// What the page of the lane of a key says.
fn holds_back(address: SocketAddr, dispatcher: &str, key: &str) -> Value {
    let find = Request::new("POST", "/find")
        .header("origin", &format!("http://{address}"))
        .header("x-keylane-console", "1");
    let find = find.json(&json!({ "dispatcher": dispatcher, "key": key }));
    let found = find.send(address).json();
    let id = found["id"].as_str().unwrap();
    let path = format!("/lane?dispatcher={dispatcher}&id={id}");
    Request::new("GET", &path).send(address).json()["holds_back"].clone()
}

#[test]
fn a_part_names_the_lane_that_holds_it_back_and_that_lane_names_the_part() {
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::new());
    let server = ReferenceServer::new(Features::new().survives_restart());
    let all = [("cid", "is done"), ("ann", "waits"), ("bob", "fails")];
    let all = all
        .into_iter()
        .chain([("dan", "is done"), ("eve", "waits")]);
    server.publish(all.map(|(key, payload)| RawMessage::new(payload).key(key)));
    let entered = runtime.enter();
    let (orders, others) = (orders(&gate), orders(&Gate::new()));
    let intake = orders.consume(server.source()).unwrap();
    let parts = server.clone();
    let console = Console::builder()
        .dispatcher("others", &others)
        .dispatcher("orders", &orders)
        .intake("memory", &intake)
        .parts("memory", move || {
            let unsaid = SourcePart {
                name: "where it is at is not said".to_owned(),
                frontier: Some("1".to_owned()),
                ..SourcePart::default()
            };
            vec![partition(&parts), unsaid]
        });
    let address = serve(&runtime, console);
    drop(entered);
    // The same keys in another dispatcher.
    for key in ["ann", "bob"] {
        let message = RawMessage::new("waits").key(key);
        assert!(runtime.block_on(others.send(message)).is_ok());
    }

    // With its handler.
    let mut feed = Stream::open(address, "/feed", None);
    let data = feed.until(|data| held_by(data, 0) == "ann");
    let row = &data["body"]["intakes"][0]["parts"][0];
    assert_eq!(
        (&row["frontier"], &row["held_by"]["dispatcher"]),
        (&json!("1"), &json!("orders"))
    );
    assert_eq!(held_by(&data, 1), &Value::Null);
    let part = json!([{ "intake": "memory", "part": "orders/0" }]);
    assert_eq!(holds_back(address, "orders", "ann"), part);
    until("bob is halted", || orders.stats().halted == 1);
    for (dispatcher, key) in [("orders", "bob"), ("orders", "eve"), ("others", "ann")] {
        assert_eq!(
            holds_back(address, dispatcher, key),
            json!([]),
            "{dispatcher} {key}"
        );
    }

    // Halted.
    gate.release(2);
    feed.until(|data| held_by(data, 0) == "bob");
    let browser = Browser::start();
    browser.resize(1_280, 900);
    browser.open(&format!("http://{address}/#sources"));
    browser.until("document.querySelector('.lags .held-by')?.textContent == 'held back by bob'");
    is_named(&browser);
    for width in [400, 1_280] {
        look(&browser, width, "held-back");
    }
    // The row stays while it is shown anew.
    browser.run("document.querySelector('.lags .held-by a').isSame = true");
    feed.next();
    feed.next();
    browser.until("document.querySelector('.lags .held-by a').isSame");
    browser.click(".lags .held-by a");
    browser.until("document.getElementById('lane-key').textContent == 'bob'");
    let fact = "Array.from(document.querySelectorAll('#facts > div'), (it) => it.textContent)";
    browser.until(&format!("{fact}.includes('holds backorders/0 of memory')"));
    for width in [400, 1_280] {
        look(&browser, width, "holds-back");
    }
    orders.lane(&"bob".into()).skip().unwrap();
    browser.until(&format!(
        "!{fact}.some((it) => it.startsWith('holds back'))"
    ));
    drop(browser);
    feed.until(|data| held_by(data, 0).is_null());
}

/// The reference source is not the only one whose positions are found.
#[test]
fn a_partition_of_kafka_names_the_lane_that_holds_it_back() {
    let runtime = Runtime::new().unwrap();
    let kafka = Kafka::builder().property("auto.create.topics.enable", "true");
    let kafka = runtime.block_on(kafka.start()).unwrap();
    let brokers = kafka.bootstrap();
    let producer = Producer::builder(&brokers).build().unwrap();
    let gate = Gate::new();
    let entered = runtime.enter();
    let orders = orders(&gate);
    for (key, payload) in [("cid", "is done"), ("ann", "waits"), ("bob", "is done")] {
        let order = RawMessage::new(payload).key(key);
        // The broker makes the topic at the first one.
        until("it is written", || {
            runtime.block_on(producer.send("orders", &order)).is_ok()
        });
    }
    let source = KafkaSource::builder(&brokers, "billing").topic("orders");
    let source = source.build().unwrap();
    let control = source.control();
    let intake = orders.consume(source).unwrap();
    let console: Builder = Console::builder()
        .dispatcher("orders", &orders)
        .intake("kafka", &intake)
        .partitions("kafka", control);
    let address = serve(&runtime, console);
    drop(entered);
    let mut feed = Stream::open(address, "/feed", None);
    let data = feed.until(|data| held_by(data, 0) == "ann");
    assert_eq!(data["body"]["intakes"][0]["parts"][0]["name"], "orders/0");
    let part = json!([{ "intake": "kafka", "part": "orders/0" }]);
    assert_eq!(holds_back(address, "orders", "ann"), part);
    gate.open();
    feed.until(|data| held_by(data, 0).is_null());
    runtime.block_on(async {
        drop(intake);
        orders.drain().await;
    });
}
