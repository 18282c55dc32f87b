//! What the log says of messages.

use keylane_inbox::NewMessage;
use keylane_testkit::Lines;
use keylane_testkit::scenario::give_up;

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
