//! What the log says of messages.

use keylane_inbox::{Inbox, NewMessage};
use keylane_testkit::Lines;
use keylane_testkit::scenario::give_up;

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
