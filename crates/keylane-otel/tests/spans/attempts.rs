//! One span for each attempt.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylane::source::RawMessage;
use keylane::{Builder, Context, Dispatcher, OnExhausted, Retry};
use keylane_otel::{Relation, Traced, names, traced};
use keylane_testkit::Gate;
use keylane_testkit::scenario::until;
use opentelemetry::trace::{SpanId, SpanKind, TraceId};
use opentelemetry_sdk::trace::Sampler;

use crate::support::{KEY, Spans, get, is_error, links, outcome, sent};

/// The trace and the span of the known sender.
fn sender() -> (TraceId, SpanId) {
    let trace = TraceId::from(0x4bf92f3577b34da6a3ce929d0e0e4736);
    (trace, SpanId::from(0x00f067aa0ba902b7))
}

/// An error that shows the key, as errors do.
#[derive(Debug)]
struct NoFunds(#[expect(dead_code, reason = "`Debug` shows it")] &'static str);

const BROKE: NoFunds = NoFunds(KEY);

fn by_key<E: std::fmt::Debug + Send + Sync + 'static>()
-> Builder<Bytes, RawMessage, E, impl Fn(&RawMessage) -> Option<Bytes> + Send + Sync + 'static> {
    Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
}

#[tokio::test]
async fn an_attempt_is_a_span_with_a_link_to_the_sender() {
    let spans = Spans::new();
    let orders = spans.topic("orders").group("billing");
    let handler = |_: RawMessage| async { Ok::<(), NoFunds>(()) };
    let dispatcher = by_key().spawn(orders.process(handler)).unwrap();
    dispatcher.send(sent("250")).await.unwrap();
    assert_eq!(dispatcher.drain().await.done, 1);

    let span = spans.only();
    assert_eq!(span.name, "process orders");
    assert_eq!(span.span_kind, SpanKind::Consumer);
    let (trace, parent) = sender();
    assert_ne!(span.span_context.trace_id(), trace);
    assert_eq!(span.parent_span_id, SpanId::INVALID);
    let linked = links(&span);
    assert_eq!(linked.len(), 1);
    assert_eq!((linked[0].trace_id(), linked[0].span_id()), (trace, parent));
    assert_eq!(linked[0].trace_state().header(), "rojo=1");
    for (name, value) in [
        (names::SYSTEM, "kafka"),
        (names::DESTINATION, "orders"),
        (names::PARTITION, "3"),
        (names::KAFKA_OFFSET, "1200"),
        (names::GROUP, "billing"),
        (names::OPERATION, "process"),
        (names::OPERATION_TYPE, "process"),
        (names::ATTEMPT, "1"),
        (names::OUTCOME, "done"),
    ] {
        assert_eq!(get(&span, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(get(&span, names::ERROR_TYPE), None);
    assert!(!is_error(&span));
}

#[tokio::test]
async fn an_attempt_is_a_child_of_the_sender_if_that_is_set() {
    let spans = Spans::new();
    let orders = spans.topic("orders").relation(Relation::Parent);
    let handler = |_: RawMessage| async { Ok::<(), NoFunds>(()) };
    let dispatcher = by_key().spawn(orders.process(handler)).unwrap();
    dispatcher.send(sent("250")).await.unwrap();
    dispatcher.drain().await;
    let span = spans.only();
    let (trace, parent) = sender();
    assert_eq!(span.span_context.trace_id(), trace);
    assert_eq!(span.parent_span_id, parent);
    assert!(span.parent_span_is_remote);
    assert_eq!(links(&span).len(), 1);
}

#[tokio::test]
async fn a_message_without_a_context_has_a_span_of_its_own() {
    for relation in [Relation::Link, Relation::Parent] {
        let spans = Spans::new();
        let orders = spans.topic("orders").relation(relation);
        let handler = |_: RawMessage| async { Ok::<(), NoFunds>(()) };
        let dispatcher = by_key().spawn(orders.process(handler)).unwrap();
        let mut bare = RawMessage::new("250").key(KEY);
        bare.headers
            .push(("traceparent".into(), Some("00-x".into())));
        dispatcher.send(bare).await.unwrap();
        dispatcher.drain().await;
        let span = spans.only();
        assert_eq!(span.parent_span_id, SpanId::INVALID);
        assert!(links(&span).is_empty());
    }
}

#[tokio::test]
async fn each_retry_is_a_span_of_its_own() {
    for relation in [Relation::Link, Relation::Parent] {
        let spans = Spans::new();
        let orders = spans.topic("orders").relation(relation);
        let handler = |context: Context<Bytes>, _: RawMessage| async move {
            if context.attempt() < 3 {
                Err(BROKE)
            } else {
                Ok(())
            }
        };
        let dispatcher = by_key()
            .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(3))
            .spawn(orders.process(handler))
            .unwrap();
        dispatcher.send(sent("250")).await.unwrap();
        assert_eq!(dispatcher.drain().await.done, 1);

        let ended = spans.ended();
        let attempts = ended.iter().map(|span| get(span, names::ATTEMPT).unwrap());
        assert_eq!(attempts.collect::<Vec<_>>(), ["1", "2", "3"]);
        let outcomes = ended.iter().map(outcome);
        assert_eq!(outcomes.collect::<Vec<_>>(), ["failed", "failed", "done"]);
        assert_eq!(
            ended.iter().map(is_error).collect::<Vec<_>>(),
            [true, true, false]
        );
        let error = get(&ended[0], names::ERROR_TYPE).unwrap();
        assert!(error.ends_with("NoFunds"), "{error}");
        // One trace, or the same link.
        let (trace, parent) = sender();
        for span in &ended {
            assert_eq!(links(span)[0].span_id(), parent);
            assert_eq!(
                span.span_context.trace_id() == trace,
                relation == Relation::Parent
            );
        }
    }
}

#[tokio::test]
async fn a_panic_ends_the_span() {
    let spans = Spans::new();
    let orders = spans.topic("orders");
    let handler = |message: RawMessage| {
        // The first message panics before there is a future, the second one behind an await.
        assert!(message.payload != "early", "early");
        async move {
            tokio::task::yield_now().await;
            assert!(message.payload != "late", "late");
            Ok::<(), NoFunds>(())
        }
    };
    let dispatcher = by_key()
        .on_exhausted(OnExhausted::Discard)
        .spawn(orders.process(handler))
        .unwrap();
    for payload in ["early", "late", "fine"] {
        dispatcher.send(sent(payload)).await.unwrap();
    }
    dispatcher.drain().await;
    let ended = spans.ended();
    let outcomes: Vec<_> = ended.iter().map(outcome).collect();
    assert_eq!(outcomes, ["panicked", "panicked", "done"]);
    assert_eq!(get(&ended[1], names::ERROR_TYPE).as_deref(), Some("panic"));
    assert!(is_error(&ended[0]) && is_error(&ended[1]));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_dropped_at_its_deadline_ends_its_span() {
    let spans = Spans::new();
    let orders = spans.topic("orders");
    let handler = |_: RawMessage| std::future::pending::<Result<(), NoFunds>>();
    let dispatcher = by_key()
        .attempt_timeout(Duration::from_secs(5))
        .on_exhausted(OnExhausted::Discard)
        .spawn(orders.process(handler))
        .unwrap();
    dispatcher.send(sent("250")).await.unwrap();
    dispatcher.drain().await;
    let span = spans.only();
    assert_eq!(outcome(&span), "timed_out");
    assert_eq!(get(&span, names::ERROR_TYPE).as_deref(), Some("timeout"));
    assert!(is_error(&span));
}

#[tokio::test]
async fn an_attempt_that_an_abort_drops_ends_its_span() {
    let spans = Spans::new();
    let orders = spans.topic("orders");
    let handler = |_: RawMessage| std::future::pending::<Result<(), NoFunds>>();
    let dispatcher = by_key()
        .attempt_timeout(Duration::from_secs(3_600))
        .spawn(orders.process(handler))
        .unwrap();
    dispatcher.send(sent("250")).await.unwrap();
    until(|| spans.started() == 1).await;
    dispatcher.abort().await;
    let span = spans.only();
    assert_eq!(outcome(&span), "dropped");
    assert_eq!(get(&span, names::ERROR_TYPE).as_deref(), Some("dropped"));
}

#[tokio::test]
async fn a_message_that_waits_in_its_lane_has_no_span() {
    let spans = Spans::new();
    let orders = spans.topic("orders");
    let gate = Arc::new(Gate::new());
    let handler = {
        let gate = Arc::clone(&gate);
        move |_: RawMessage| {
            let gate = Arc::clone(&gate);
            async move {
                gate.pass().await;
                Ok::<(), NoFunds>(())
            }
        }
    };
    let dispatcher = by_key().spawn(orders.process(handler)).unwrap();
    for _ in 0..5 {
        dispatcher.send(sent("250")).await.unwrap();
    }
    gate.arrivals(1).await;
    assert_eq!((spans.started(), spans.ended().len()), (1, 0));
    gate.open();
    assert_eq!(dispatcher.drain().await.done, 5);
    let ended = spans.ended();
    assert_eq!(ended.len(), 5);
    let pairs = ended.windows(2);
    assert!(
        pairs
            .into_iter()
            .all(|pair| pair[0].end_time <= pair[1].start_time)
    );
}

#[tokio::test]
async fn no_span_has_the_key_or_the_text_of_an_error() {
    for shows in [false, true] {
        let spans = Spans::new();
        let mut orders = spans.topic("orders");
        if shows {
            orders = orders.show_errors();
        }
        let dispatcher = by_key()
            .on_exhausted(OnExhausted::Discard)
            .spawn(orders.process(|_: RawMessage| async { Err::<(), _>(BROKE) }))
            .unwrap();
        dispatcher.send(sent("250")).await.unwrap();
        dispatcher.drain().await;
        let span = spans.only();
        assert_eq!(format!("{span:?}").contains(KEY), shows, "{span:?}");
    }
}

#[tokio::test]
async fn a_decoded_message_has_the_origin_of_its_raw_message() {
    let spans = Spans::new();
    let orders = spans.topic("orders");
    let decode = traced(|raw| Ok(std::str::from_utf8(&raw.payload)?.parse::<u64>()?));
    let mut raw = sent("250");
    raw.enqueued_at = Some(std::time::SystemTime::now() - Duration::from_secs(60));
    let message: Traced<u64> = decode(&raw).unwrap();
    assert!(decode(&sent("many")).is_err());
    let handler = |cents: Traced<u64>| async move { Ok::<_, NoFunds>(*cents) };
    let dispatcher = Dispatcher::builder(|cents: &Traced<u64>| **cents)
        .spawn(orders.process(handler))
        .unwrap();
    assert_eq!(
        dispatcher.submit(message).await.unwrap().await.unwrap(),
        250
    );
    dispatcher.drain().await;
    let span = spans.only();
    assert_eq!(links(&span)[0].span_id(), sender().1);
    assert_eq!(get(&span, names::PARTITION).as_deref(), Some("3"));
    let seconds = |name| get(&span, name).unwrap().parse::<f64>().unwrap();
    assert!(seconds(names::AGE) >= 60.0);
    assert!((0.0..60.0).contains(&seconds(names::WAITED)));
}

#[tokio::test]
async fn a_topic_that_is_not_the_one_of_the_settings_is_shown() {
    let spans = Spans::new();
    let several = spans.topic("orders.*");
    let handler = |_: RawMessage| async { Ok::<(), NoFunds>(()) };
    let dispatcher = by_key().spawn(several.process(handler)).unwrap();
    dispatcher.send(sent("250")).await.unwrap();
    dispatcher.drain().await;
    let span = spans.only();
    assert_eq!(span.name, "process orders");
    assert_eq!(get(&span, names::DESTINATION).as_deref(), Some("orders"));
}

#[tokio::test]
async fn what_is_not_sampled_is_not_exported_and_the_handler_runs() {
    let spans = Spans::sampled(Sampler::AlwaysOff);
    for orders in [spans.topic("orders"), Spans::new().topic("orders").off()] {
        let handler = |_: RawMessage| async { Ok::<(), NoFunds>(()) };
        let dispatcher = by_key().spawn(orders.process(handler)).unwrap();
        dispatcher.send(sent("250")).await.unwrap();
        assert_eq!(dispatcher.drain().await.done, 1);
        assert_eq!(spans.ended().len(), 0);
    }
}
