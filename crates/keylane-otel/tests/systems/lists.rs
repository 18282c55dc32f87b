//! Lists of Redis, whose elements have an envelope for headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_otel::{Destination, Relation};
use keylane_redis::{ListQueue, Redis};
use keylane_testkit::scenario::until;
use testkit_servers::RedisKind;

use crate::support::{KEY, Spans, assert_kept, fails_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_element_its_letter_and_its_redrive_keep_the_context() {
    let spans = Spans::new();
    let server = testkit_servers::Redis::start(RedisKind::Redis7)
        .await
        .unwrap();
    let redis = Redis::at(&server.url()).unwrap();
    let queue = ListQueue::builder(&redis, "orders").dead_letters();
    let queue = queue.build().unwrap();
    let orders = Destination::redis("orders")
        .relation(Relation::Parent)
        .tracer(spans.tracer());
    let is_well = Arc::new(AtomicBool::new(false));
    let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn(orders.process(fails_until(&is_well)))
        .unwrap();
    let intake = dispatcher.consume(queue.source()).unwrap();
    let push = {
        let queue = queue.clone();
        |order| async move { queue.push(&order).await }
    };
    let order = RawMessage::new("250").key(KEY);
    orders.send(order, push).await.unwrap();
    until(|| dispatcher.stats().dead_lettered == 1).await;
    is_well.store(true, Ordering::SeqCst);
    assert_eq!(queue.redrive(10).await.unwrap(), 1);
    until(|| spans.ended().len() == 3).await;
    intake.stop().await;

    assert_kept(&spans.begun());
}
