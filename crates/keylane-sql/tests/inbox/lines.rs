//! What the log says of messages.

use keylane::OnExhausted;
use keylane::source::RawMessage;
use keylane_inbox::NewMessage;
use keylane_sql::Claim;
use keylane_testkit::Lines;
use keylane_testkit::scenario::{boxed, by_key, give_up, until};

use crate::rig::log_to;
use crate::support::{Kind, Place};

#[tokio::test]
async fn the_lines_about_a_message_name_its_row() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        let inbox = place.inbox().await;
        let message = NewMessage::new("user-7", "250").id("order-4711");
        let accepted = inbox.inbox().accept_message(message).await.unwrap();
        let lines = Lines::new();
        let _logs = log_to(&lines);
        give_up(inbox.source(), 1).await;
        let sequence = accepted.sequence();
        let named = format!(
            "source=inbox keylane_messages position=sequence {sequence} id=order-4711 attempt"
        );
        lines.assert_named(&named);
    }
}

#[tokio::test]
async fn the_line_about_a_dropped_transaction_names_its_message() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        let place = Place::new(kind).await;
        let inbox = place.inbox().await;
        let message = NewMessage::new("user-7", "250").id("order-4711");
        let accepted = inbox.inbox().accept_message(message).await.unwrap();
        let lines = Lines::new();
        let _logs = log_to(&lines);
        let drops = inbox.clone();
        let dispatcher = by_key()
            .on_exhausted(OnExhausted::AtSource)
            .spawn(boxed(move |raw: RawMessage| {
                let inbox = drops.clone();
                async move {
                    drop(inbox.begin(Claim::of(&raw).unwrap()).await?);
                    Ok(())
                }
            }))
            .unwrap();
        let intake = dispatcher.consume(inbox.source()).unwrap();
        until(|| !lines.with("dropped its transaction").is_empty()).await;
        intake.stop().await;
        let line = lines.with("dropped its transaction").remove(0);
        let sequence = accepted.sequence();
        let named = format!(
            "source=inbox keylane_messages position=sequence {sequence} id=order-4711 attempts=1"
        );
        assert!(line.contains(" key=#") && line.contains(&named), "{line}");
    }
}
