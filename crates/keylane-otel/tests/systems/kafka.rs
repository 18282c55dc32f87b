//! Kafka, and Redis behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keylane::source::RawMessage;
use keylane::{Context, Dispatcher, OnExhausted, Retry};
use keylane_kafka::{KafkaSource, Producer, Redrive};
use keylane_otel::{Destination, Relation, names};
use keylane_redis::{Redis, StreamSink, StreamSource};
use keylane_testkit::scenario::until;
use opentelemetry::trace::{
    FutureExt as _, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use testkit_servers::RedisKind;

use crate::collector::Collector;
use crate::support::{KEY, Spans, assert_kept, fails_until, get};
use crate::topics::{broker, topic};

/// The handler of an order fails once, and sends a shipment then.
async fn ship(
    attempt: u32,
    shipments: Destination,
    stream: StreamSink,
) -> Result<(), keylane::error::BoxError> {
    if attempt == 1 {
        return Err("not yet".into());
    }
    // Behind an await the context is still there.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let shipment = RawMessage::new("one parcel").key(KEY);
    let push = |shipment| async move { stream.push(&shipment).await };
    Ok(shipments.send(shipment, push).await?)
}

/// Returns the only span with this name, or the last one of several.
fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found = spans.iter().rfind(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no span {name}: {spans:?}"))
}

/// A producer sends an order into a topic, a dispatcher handles it and sends a shipment into a
/// stream, and another dispatcher handles that. All of it is one trace in the collector.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_a_producer_over_kafka_and_redis_is_one_trace() {
    let (collector, provider) = Collector::start().await;
    let tracer = provider.tracer("test");
    let kafka = broker().await;
    let name = topic(&kafka, "orders").await;
    let server = testkit_servers::Redis::start(RedisKind::Redis7)
        .await
        .unwrap();
    let redis = Redis::at(&server.url()).unwrap();

    let orders = Destination::kafka(name.clone())
        .relation(Relation::Parent)
        .tracer(tracer.clone());
    let shipments = Destination::redis("shipments")
        .relation(Relation::Parent)
        .tracer(tracer.clone());

    let shipped = Arc::new(AtomicU64::new(0));
    let shipping = {
        let shipped = Arc::clone(&shipped);
        move |_: RawMessage| {
            shipped.fetch_add(1, Ordering::SeqCst);
            async { Ok::<(), std::io::Error>(()) }
        }
    };
    let shipping = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(shipments.process(shipping))
        .unwrap();
    let stream = StreamSink::new(&redis, "shipments").unwrap();
    let ordering = {
        let shipments = shipments.clone();
        move |context: Context<Bytes>, _: RawMessage| {
            ship(context.attempt(), shipments.clone(), stream.clone())
        }
    };
    let ordering = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(2))
        .on_exhausted(OnExhausted::Halt)
        .spawn(orders.process(ordering))
        .unwrap();
    let source = StreamSource::builder(&redis, "shipping").stream("shipments");
    let second = shipping.consume(source.build().unwrap()).unwrap();
    let source = KafkaSource::builder(kafka.bootstrap(), "ordering").topic(&name);
    let first = ordering.consume(source.build().unwrap()).unwrap();

    let producer = Producer::builder(kafka.bootstrap()).build().unwrap();
    let checkout = opentelemetry::Context::new().with_span(tracer.start("checkout"));
    let send = |order| {
        let (producer, name) = (producer.clone(), name.clone());
        async move { producer.send(&name, &order).await }
    };
    let sent = orders.send(RawMessage::new("250").key(KEY), send);
    sent.with_context(checkout.clone()).await.unwrap();
    checkout.span().end();

    until(|| shipped.load(Ordering::SeqCst) == 1).await;
    first.stop().await;
    second.stop().await;
    let flushed = tokio::task::spawn_blocking(move || provider.force_flush());
    flushed.await.unwrap().unwrap();

    let spans = collector.spans();
    let process = format!("process {name}");
    let chain = [
        "checkout".to_owned(),
        format!("send {name}"),
        process.clone(),
        "send shipments".to_owned(),
        "process shipments".to_owned(),
    ];
    assert_eq!(spans.len(), chain.len() + 1, "{spans:?}");
    let trace = &spans[0].trace_id;
    assert!(
        spans.iter().all(|span| span.trace_id == *trace),
        "{spans:?}"
    );
    for pair in chain.windows(2) {
        let (parent, child) = (named(&spans, &pair[0]), named(&spans, &pair[1]));
        assert_eq!(child.parent_span_id, parent.span_id, "{pair:?}");
    }
    // The attempt that failed is a child of the same sender.
    let attempts = spans.iter().filter(|span| span.name == process);
    let parents = attempts
        .map(|span| &span.parent_span_id)
        .collect::<Vec<_>>();
    assert_eq!(parents.len(), 2);
    assert_eq!(parents[0], parents[1]);
    assert!(!format!("{spans:?}").contains(KEY));
}

/// A record that fails is a dead letter in a topic, goes back, and succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_in_a_topic_and_its_redrive_keep_the_context() {
    let spans = Spans::new();
    let kafka = broker().await;
    let name = topic(&kafka, "orders").await;
    let letters = topic(&kafka, "orders.dead").await;
    let orders = Destination::kafka(name.clone())
        .relation(Relation::Parent)
        .tracer(spans.tracer());
    let is_well = Arc::new(AtomicBool::new(false));
    let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn(orders.process(fails_until(&is_well)))
        .unwrap();
    let source = KafkaSource::builder(kafka.bootstrap(), "redriven")
        .topic(&name)
        .dead_letters(&letters);
    let intake = dispatcher.consume(source.build().unwrap()).unwrap();

    let producer = Producer::builder(kafka.bootstrap()).build().unwrap();
    let send = |order| {
        let (producer, name) = (producer.clone(), name.clone());
        async move { producer.send(&name, &order).await }
    };
    let order = RawMessage::new("250").key(KEY);
    orders.send(order, send).await.unwrap();
    until(|| dispatcher.stats().dead_lettered == 1).await;
    is_well.store(true, Ordering::SeqCst);
    let redrive = Redrive::new(kafka.bootstrap(), &letters, producer.clone());
    assert_eq!(redrive.run().await.unwrap().redriven, 1);
    until(|| spans.ended().len() == 3).await;
    intake.stop().await;

    let begun = spans.begun();
    assert_kept(&begun);
    let places = begun[1..].iter();
    let places = places.map(|attempt| get(attempt, names::KAFKA_OFFSET).unwrap());
    assert_eq!(places.collect::<Vec<_>>(), ["0", "1"]);
}
