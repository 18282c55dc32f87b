//! The context in which a message was made outlives what happens to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::{KEY, Spans, assert_kept, fails_until};
use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::{Inbox, NewMessage};
use keylane_otel::{CreationContext, Destination, Relation};
use keylane_spool::{Message, SinkError, Spool, Spooled};
use keylane_testkit::scenario::{until, until_async};

/// A message that is sent into an inbox fails, is a letter, goes back, and succeeds: all attempts
/// are children of the span that sent it.
#[tokio::test]
async fn the_letter_of_an_inbox_and_its_redrive_keep_the_context() {
    let spans = Spans::new();
    let orders = Destination::keylane("orders").tracer(spans.tracer());
    let folder = tempfile::tempdir().unwrap();
    let inbox = Inbox::open(folder.path().join("orders")).await.unwrap();
    let message = NewMessage::new(KEY, "250").header("content-type", "text");
    let accept = {
        let inbox = inbox.clone();
        |message| async move { inbox.accept_message(message).await.map(drop) }
    };
    orders.send(message, accept).await.unwrap();

    let is_well = Arc::new(AtomicBool::new(false));
    let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn(
            orders
                .clone()
                .relation(Relation::Parent)
                .process(fails_until(&is_well)),
        )
        .unwrap();
    let intake = dispatcher.consume(inbox.source()).unwrap();
    let letters = inbox.letters();
    let listed = async || letters.list(0, 10).await.unwrap();
    until_async("there is a letter", async || !listed().await.is_empty()).await;
    let letter = listed().await.remove(0);
    let creation = CreationContext::of(&letter.message);
    is_well.store(true, Ordering::SeqCst);
    letters.redrive([letter.message.sequence]).await.unwrap();
    until(|| spans.ended().len() == 3).await;
    intake.stop().await;
    inbox.close().await.unwrap();

    let begun = spans.begun();
    assert_kept(&begun);
    // The letter says it, too.
    let made_by = creation.span_context().unwrap();
    assert_eq!(made_by.span_id(), begun[0].span_context.span_id());
}

/// A message waits in a spool while its target is away, and over a restart of the process.
#[tokio::test]
async fn a_spool_keeps_the_context() {
    let spans = Spans::new();
    let outbox = Destination::keylane("outbox").tracer(spans.tracer());
    let folder = tempfile::tempdir().unwrap();
    let away = |_: Vec<Spooled>| async { Err::<(), _>(SinkError::failed("away")) };
    let spool = Spool::builder(away)
        .dir(folder.path())
        .open()
        .await
        .unwrap();
    // An earlier context is replaced, and other headers stay.
    let message = Message::new(KEY, "250")
        .header("content-type", "text")
        .header("TraceParent", "00-old");
    let push = |message| {
        let spool = spool.clone();
        async move { spool.push_message(message).await }
    };
    outbox.send(message, push).await.unwrap();
    spool.close().within(std::time::Duration::ZERO).await;
    drop(spool);

    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let seen = Arc::clone(&seen);
        move |batch: Vec<Spooled>| {
            seen.lock().unwrap().extend(batch);
            async { Ok::<(), SinkError>(()) }
        }
    };
    let spool = Spool::builder(sink)
        .dir(folder.path())
        .open()
        .await
        .unwrap();
    spool.flush().await.unwrap();
    let seen = seen.lock().unwrap().remove(0);
    let creation = CreationContext::of(&seen);
    let send = spans.only();
    assert_eq!(
        creation.span_context().unwrap().span_id(),
        send.span_context.span_id()
    );
    let names: Vec<_> = seen.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["content-type", "traceparent"]);
}
