//! One span for each batch.

use std::time::Duration;

use keylane::source::RawMessage;
use keylane::{Dispatcher, Retry};
use keylane_otel::{Relation, names};
use opentelemetry::trace::{SpanId, SpanKind};

use crate::support::{KEY, PARENT, Spans, get, links, outcome};

/// A message of the sender with this number.
fn from(sender: u64) -> RawMessage {
    let mut message = RawMessage::new(sender.to_string()).key(KEY);
    let parent = PARENT.replace("00f067aa0ba902b7", &format!("{sender:016x}"));
    message
        .headers
        .push(("traceparent".into(), Some(parent.into())));
    message
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_span_with_a_link_for_each_message() {
    for relation in [Relation::Link, Relation::Parent] {
        let spans = Spans::new();
        let orders = spans.topic("orders").relation(relation);
        let handler = |batch: Vec<RawMessage>| async move {
            assert_eq!(batch.len(), 3);
            Ok::<(), std::io::Error>(())
        };
        let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .batch(3, Duration::from_secs(60))
            .spawn_batches(orders.process_batches(handler))
            .unwrap();
        for number in 1..=3 {
            dispatcher.send(from(number)).await.unwrap();
        }
        assert_eq!(dispatcher.drain().await.done, 3);
        let span = spans.only();
        assert_eq!(
            (&*span.name, &span.span_kind),
            ("process orders", &SpanKind::Consumer)
        );
        assert_eq!(span.parent_span_id, SpanId::INVALID);
        let linked = links(&span);
        let linked = linked.iter().map(|link| link.span_id());
        assert!(linked.eq((1..=3).map(SpanId::from)));
        assert_eq!(get(&span, names::BATCH_SIZE).as_deref(), Some("3"));
        assert_eq!(outcome(&span), "done");
    }
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_batch_has_the_number_of_its_failures() {
    let spans = Spans::new();
    let orders = spans.topic("orders");
    let handler = |batch: Vec<RawMessage>| async move {
        let is_alone = batch.len() == 1;
        let answers = batch.into_iter().map(|message| match &*message.payload {
            b"2" if !is_alone => Err("not in a batch"),
            _ => Ok(()),
        });
        answers.collect::<Vec<Result<(), &str>>>()
    };
    let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(3))
        .batch(3, Duration::from_secs(60))
        .spawn_batches(orders.process_batches(handler))
        .unwrap();
    for number in 1..=3 {
        dispatcher.send(from(number)).await.unwrap();
    }
    assert_eq!(dispatcher.drain().await.done, 3);
    let ended = spans.ended();
    assert_eq!(outcome(&ended[0]), "failed");
    assert_eq!(get(&ended[0], names::FAILED).as_deref(), Some("1"));
    let last = ended.last().unwrap();
    assert_eq!(outcome(last), "done");
    assert_eq!(links(last)[0].span_id(), SpanId::from(2));
}
