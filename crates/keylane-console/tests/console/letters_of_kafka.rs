//! The dead letters in a topic, on a real broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_console::Action;
use keylane_kafka::{KafkaLetters, KafkaSource, Producer};
use serde_json::Value;
use testkit_browser::until;
use testkit_servers::Kafka;
use tokio::runtime::Runtime;

use crate::letters_of_redis::{are_purged_and_redriven, listed};
use crate::served::Served;

/// Waits for so many letters. The topic is there soon after the source has opened.
fn until_listed(served: &Served, count: usize) -> Vec<Value> {
    let mut letters = Vec::new();
    until("they are letters", || {
        let answer = served.get("letters?name=dead");
        let is_there = answer.status == 200;
        letters = if is_there { listed(served) } else { Vec::new() };
        is_there && letters.len() == count
    });
    letters
}

/// Two orders become letters. One is purged, the other one is redriven, once in vain.
#[test]
fn the_letters_in_a_topic_are_shown_purged_and_redriven() {
    let runtime = Runtime::new().unwrap();
    let kafka = Kafka::builder().property("auto.create.topics.enable", "true");
    let kafka = runtime.block_on(kafka.start()).unwrap();
    let brokers = kafka.bootstrap();
    let producer = Producer::builder(&brokers).build().unwrap();
    let fails = Arc::new(AtomicBool::new(true));
    let entered = runtime.enter();
    let orders = Dispatcher::builder(|order: &RawMessage| order.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn({
            let fails = Arc::clone(&fails);
            move |_: RawMessage| {
                let fails = fails.load(Ordering::Relaxed);
                async move { if fails { Err("declined") } else { Ok(()) } }
            }
        })
        .unwrap();
    for key in ["ann", "bob"] {
        let mut order = RawMessage::new("{\"cents\":100}").key(key);
        let trace = ("trace".to_owned(), Some("<i>7</i>".into()));
        order.headers.push(trace);
        // The broker makes the topic at the first one.
        until("it is written", || {
            runtime.block_on(producer.send("orders", &order)).is_ok()
        });
    }
    let source = KafkaSource::builder(&brokers, "billing").topic("orders");
    let source = source.dead_letters("orders.dead").build().unwrap();
    let intake = orders.consume(source).unwrap();
    drop(entered);
    let served = Served::<String>::start(|console| {
        let letters = KafkaLetters::new(&brokers, "orders.dead", producer);
        console.allow(Action::ALL).letters("dead", letters)
    });

    let letters = until_listed(&served, 2);
    are_purged_and_redriven(&letters, &served, &orders, &fails);
    runtime.block_on(async {
        drop(intake);
        orders.drain().await;
    });
}
