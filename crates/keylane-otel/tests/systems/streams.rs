//! Streams of Redis, whose entries have fields for headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_otel::{CreationContext, Destination, Relation};
use keylane_redis::{Redis, StreamLetters, StreamSink, StreamSource};
use keylane_testkit::scenario::{until, until_async};
use testkit_servers::RedisKind;

use crate::support::{KEY, Spans, assert_kept, fails_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_its_letter_and_its_redrive_keep_the_context() {
    let spans = Spans::new();
    let server = testkit_servers::Redis::start(RedisKind::Redis7);
    let server = server.await.unwrap();
    let redis = Redis::at(&server.url()).unwrap();
    let sink = StreamSink::new(&redis, "orders").unwrap();
    let letters = StreamLetters::new(&redis, "orders.dead").unwrap();
    let source = StreamSource::builder(&redis, "billing").stream("orders");
    let source = source.dead_letters("orders.dead").build().unwrap();
    let orders = Destination::redis("orders")
        .relation(Relation::Parent)
        .tracer(spans.tracer());
    let is_well = Arc::new(AtomicBool::new(false));
    let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn(orders.process(fails_until(&is_well)))
        .unwrap();
    let intake = dispatcher.consume(source).unwrap();
    let push = {
        let sink = sink.clone();
        |order| async move { sink.push(&order).await }
    };
    let order = RawMessage::new("250").key(KEY);
    orders.send(order, push).await.unwrap();
    until(|| dispatcher.stats().dead_lettered == 1).await;
    let listed = async || letters.list(None, 10).await.unwrap();
    until_async("there is a letter", async || !listed().await.is_empty()).await;
    let letter = listed().await.remove(0);
    is_well.store(true, Ordering::SeqCst);
    assert_eq!(letters.redrive(&[letter.id]).await.unwrap(), 1);
    until(|| spans.ended().len() == 3).await;
    intake.stop().await;

    let begun = spans.begun();
    assert_kept(&begun);
    // The letter says it, too.
    let creation = CreationContext::of(&letter.message);
    let made_by = creation.span_context().unwrap();
    assert_eq!(made_by.span_id(), begun[0].span_context.span_id());
}
