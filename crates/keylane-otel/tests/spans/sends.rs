//! One span for each message that is sent.

use std::future::pending;

use keylane::source::RawMessage;
use keylane_otel::{CreationContext, names};
use keylane_testkit::scenario::until;
use opentelemetry::Context;
use opentelemetry::trace::FutureExt as _;
use opentelemetry::trace::{SpanId, SpanKind, TraceContextExt as _, Tracer as _};

use crate::support::{KEY, Spans, get, is_error, outcome};

#[tokio::test]
async fn a_send_is_a_child_of_the_current_span_and_the_parent_of_the_message() {
    let spans = Spans::new();
    let invoices = spans.topic("invoices").group("billing");
    let outer = Context::new().with_span(spans.tracer().start("checkout"));
    let invoice = RawMessage::new("42 EUR").key(KEY);
    let write = |invoice: RawMessage| async move {
        let current = Context::current().span().span_context().clone();
        Ok::<_, std::io::Error>((invoice, current))
    };
    let sent = invoices.send(invoice, write).with_context(outer.clone());
    let (invoice, current) = sent.await.unwrap();
    outer.span().end();

    let ended = spans.ended();
    let (send, checkout) = (&ended[0], &ended[1]);
    assert_eq!(
        (&*send.name, &send.span_kind),
        ("send invoices", &SpanKind::Producer)
    );
    assert_eq!(send.parent_span_id, checkout.span_context.span_id());
    assert_eq!(current, send.span_context);
    let creation = CreationContext::of(&invoice);
    assert_eq!(
        creation.span_context().unwrap().span_id(),
        current.span_id()
    );
    assert_eq!(get(send, names::OPERATION_TYPE).as_deref(), Some("send"));
    // Only a consumer has a group.
    assert_eq!(get(send, names::GROUP), None);
    assert_eq!(outcome(send), "done");
    assert!(!format!("{send:?}").contains(KEY));
}

#[tokio::test]
async fn several_messages_have_one_span() {
    let spans = Spans::new();
    let invoices = spans.topic("invoices");
    let all = vec![RawMessage::new("1"), RawMessage::new("2")];
    let write = |all: Vec<RawMessage>| async move { Ok::<_, std::io::Error>(all) };
    let all = invoices.send_all(all, write).await.unwrap();
    let span = spans.only();
    assert_eq!(get(&span, names::BATCH_SIZE).as_deref(), Some("2"));
    for message in &all {
        let creation = CreationContext::of(message);
        let id = creation
            .span_context()
            .map_or(SpanId::INVALID, |span| span.span_id());
        assert_eq!(id, span.span_context.span_id());
    }
}

#[tokio::test]
async fn a_send_that_fails_or_is_dropped_ends_its_span() {
    let spans = Spans::new();
    let invoices = spans.topic("invoices");
    let fails = |_| async { Err::<(), _>(std::io::Error::other("away")) };
    invoices
        .send(RawMessage::new("1"), fails)
        .await
        .unwrap_err();
    let dropped = {
        let invoices = invoices.clone();
        tokio::spawn(async move {
            let never = |_| pending::<Result<(), std::io::Error>>();
            invoices.send(RawMessage::new("2"), never).await
        })
    };
    until(|| spans.started() == 2).await;
    dropped.abort();
    until(|| spans.ended().len() == 2).await;
    let ended = spans.ended();
    let error = get(&ended[0], names::ERROR_TYPE).unwrap();
    assert!(error.ends_with("io::error::Error"), "{error}");
    assert_eq!(
        [outcome(&ended[0]), outcome(&ended[1])],
        ["failed", "dropped"]
    );
    assert!(ended.iter().all(is_error));
}

#[tokio::test]
async fn a_destination_that_is_off_writes_no_headers() {
    let spans = Spans::new();
    let invoices = spans.topic("invoices").off();
    let write = |message: RawMessage| async move { Ok::<_, std::io::Error>(message) };
    let message = invoices.send(RawMessage::new("1"), write).await.unwrap();
    assert!(message.headers.is_empty());
    assert_eq!(spans.started(), 0);
}
