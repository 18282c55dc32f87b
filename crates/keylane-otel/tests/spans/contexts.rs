//! The context inside a handler.

use std::sync::{Arc, Mutex};

use keylane::Dispatcher;
use keylane::source::RawMessage;
use keylane_otel::{CreationContext, Relation, inject};
use opentelemetry::Context;
use opentelemetry::baggage::BaggageExt as _;
use opentelemetry::trace::{SpanContext, TraceContextExt as _};

use crate::support::{Spans, sent};

fn current() -> SpanContext {
    Context::current().span().span_context().clone()
}

/// Many handlers at once on one thread: none sees the context of another one.
#[tokio::test]
async fn the_context_is_current_before_and_after_each_await_and_nowhere_else() {
    let spans = Spans::new();
    let orders = spans.topic("orders");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let seen = Arc::clone(&seen);
        move |_: u64, _: RawMessage| {
            let seen = Arc::clone(&seen);
            async move {
                let first = current();
                for _ in 0..5 {
                    tokio::task::yield_now().await;
                    assert_eq!(current(), first);
                }
                seen.lock().unwrap().push(first);
            }
        }
    };
    let handler = move |message: RawMessage| {
        let work = handler(0, message);
        async move {
            work.await;
            Ok::<(), std::io::Error>(())
        }
    };
    let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .spawn(orders.process(handler))
        .unwrap();
    for number in 0..20 {
        let mut message = sent("250");
        message.key = Some(format!("{number}").into());
        dispatcher.send(message).await.unwrap();
        assert!(!current().is_valid());
    }
    assert_eq!(dispatcher.drain().await.done, 20);
    assert!(!current().is_valid());
    let ended = spans.ended();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 20);
    for span in ended {
        assert!(seen.contains(&span.span_context));
    }
}

#[tokio::test]
async fn what_the_handler_sends_continues_the_trace_and_has_the_baggage() {
    let spans = Spans::new();
    let orders = spans.topic("orders").relation(Relation::Parent);
    let handler = |_: RawMessage| async move {
        tokio::task::yield_now().await;
        let mut invoice = sent("old context");
        inject(&Context::current(), &mut invoice);
        let baggage = Context::current();
        let tenant = baggage
            .baggage()
            .get("tenant")
            .map(|value| value.to_string());
        Ok::<_, std::io::Error>((invoice, tenant))
    };
    let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .spawn(orders.process(handler))
        .unwrap();
    let receipt = dispatcher.submit(sent("250")).await.unwrap();
    let (invoice, tenant) = receipt.await.unwrap();
    dispatcher.drain().await;
    assert_eq!(tenant.as_deref(), Some("acme"));
    let span = spans.only();
    let creation = CreationContext::of(&invoice);
    let of_invoice = creation.span_context().unwrap();
    assert_eq!(of_invoice.span_id(), span.span_context.span_id());
    assert_eq!(of_invoice.trace_id(), span.span_context.trace_id());
    let texts = invoice.headers.iter().map(|(name, value)| {
        let value = value.as_ref().unwrap();
        (name.as_str(), std::str::from_utf8(value).unwrap())
    });
    let texts: Vec<_> = texts.skip(1).collect();
    assert_eq!(
        texts,
        [("tracestate", "rojo=1"), ("baggage", "tenant=acme")]
    );
    assert_eq!(invoice.headers.len(), 3);
}
