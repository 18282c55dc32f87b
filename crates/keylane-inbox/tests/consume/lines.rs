//! What the log says of messages.

use std::time::Duration;

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_inbox::{Inbox, NewMessage};
use keylane_testkit::scenario::{give_up, until};
use keylane_testkit::{Gate, Lines};

#[tokio::test]
async fn the_lines_about_a_message_name_it() {
    let directory = tempfile::tempdir().unwrap();
    let inbox = Inbox::builder(directory.path()).name("orders");
    let inbox = inbox.open().await.unwrap();
    let message = NewMessage::new("user-7", "250").id("order-4711");
    let accepted = inbox.accept_message(message).await.unwrap();
    let lines = Lines::new();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.writer());
    // On one thread, so that all of it is logged to these lines.
    let _on = keylane_testkit::set_subscriber(subscriber.finish());
    give_up(inbox.source(), 1).await;
    let sequence = accepted.sequence();
    let named = format!("source=inbox orders position=sequence {sequence} id=order-4711 attempt");
    lines.assert_named(&named);
    inbox.close().await.unwrap();
}

/// A source without its inbox does not open: it fails, and says why.
#[tokio::test]
async fn a_source_of_an_inbox_that_is_closed_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let inbox = Inbox::builder(directory.path()).open().await.unwrap();
    let lines = Lines::new();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.writer());
    let _on = keylane_testkit::set_subscriber(subscriber.finish());
    let gate = Gate::new();
    let handler_gate = gate.clone();
    let orders = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
        .on_exhausted(OnExhausted::AtSource)
        .spawn(move |_: RawMessage| {
            let gate = handler_gate.clone();
            async move {
                gate.pass().await;
                Ok::<(), &str>(())
            }
        })
        .unwrap();
    let intake = orders.consume(inbox.source()).unwrap();
    inbox.accept("user-7", "250").await.unwrap();
    until(|| orders.stats().in_flight == 1).await;
    inbox.close().await.unwrap();
    gate.open();
    // It is opened again and again.
    until(|| intake.stats().failures >= 4).await;
    let failed = lines.with("the source failed");
    let advice = "stop the intake first, and then close the inbox";
    let told = failed.iter().filter(|line| line.contains(advice)).count();
    assert!(told > 0 && told == failed.len(), "{:#?}", lines.all());
    assert!(lines.with("open again").is_empty(), "{:#?}", lines.all());
    intake.stop().within(Duration::from_secs(1)).await;
}
