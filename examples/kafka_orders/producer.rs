//! What produces the orders, at a steady rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use rdkafka::{ClientConfig, Message};

use crate::Failure;
use crate::order::Order;

/// Orders in a second.
const RATE: f64 = 2_000.0;

/// How long the broker may take for the last ones.
const FLUSH: Duration = Duration::from_secs(30);

/// It stops when this is dropped.
pub(crate) struct Producer {
    counts: Counts,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

#[derive(Clone, Default)]
struct Counts {
    produced: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl ClientContext for Counts {}

impl ProducerContext for Counts {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.as_ref().is_ok_and(|record| record.offset() >= 0) {
            self.produced.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Producer {
    pub(crate) fn start(brokers: &str, topic: &str, orders: Vec<Order>) -> Result<Self, Failure> {
        let counts = Counts::default();
        let mut client = ClientConfig::new();
        client
            .set("bootstrap.servers", brokers)
            // An order that is sent once more must not come after the next one.
            .set("enable.idempotence", "true")
            .set("linger.ms", "5");
        let client: BaseProducer<Counts> = client.create_with_context(counts.clone())?;
        let topic = topic.to_owned();
        let thread = thread::spawn(move || produce(&client, &topic, &orders));
        Ok(Self {
            counts,
            thread: Some(thread),
        })
    }

    /// How many the broker has confirmed.
    pub(crate) fn produced(&self) -> u64 {
        self.counts.produced.load(Ordering::Relaxed)
    }

    /// An error if it has failed.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.thread.take_if(|thread| thread.is_finished()) {
            Some(thread) => thread.join().map_err(|_| "the producer has panicked")?,
            None => Ok(()),
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it says is of no use any more.
            let _ = thread.join();
        }
    }
}

fn produce(client: &BaseProducer<Counts>, topic: &str, orders: &[Order]) -> Result<(), Failure> {
    let counts = client.context().clone();
    let is_over = || counts.is_over.load(Ordering::Relaxed);
    let began = Instant::now();
    for (at, order) in orders.iter().enumerate() {
        let due = Duration::from_secs_f64(at as f64 / RATE);
        while began.elapsed() < due && !is_over() {
            client.poll(Duration::from_millis(1));
        }
        let (key, payload) = (
            format!("customer-{}", order.customer),
            serde_json::to_vec(order)?,
        );
        let mut record = BaseRecord::to(topic).key(&key).payload(&payload);
        while let Err((error, back)) = client.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            record = back;
            client.poll(Duration::from_millis(10));
        }
        if is_over() {
            return Ok(());
        }
    }
    let until = Instant::now() + FLUSH;
    while client.in_flight_count() > 0 && !is_over() && Instant::now() < until {
        client.poll(Duration::from_millis(10));
    }
    if !is_over() && counts.produced.load(Ordering::Relaxed) != orders.len() as u64 {
        return Err("the broker has not taken all orders".into());
    }
    Ok(())
}
