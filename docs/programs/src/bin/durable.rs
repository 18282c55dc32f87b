//! Orders in a directory: what was accepted survives a crash.

use std::time::Duration;

use keylane::source::{RawMessage, Source};
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_inbox::{Inbox, NewMessage};
use serde::{Deserialize, Serialize};

#[derive(Clone, Deserialize, Serialize)]
struct Order {
    user: String,
    cents: u64,
}

async fn bill(order: Order) -> Result<(), std::io::Error> {
    println!("{} pays {} cents", order.user, order.cents);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let folder = std::env::var("INBOX").unwrap_or("orders".to_owned());
    let inbox = Inbox::open(folder).await?; // one process at a time

    let orders = Dispatcher::builder(|order: &Order| order.user.clone())
        .retry(Retry::exponential(Duration::from_millis(50)).max_attempts(5))
        .on_exhausted(OnExhausted::AtSource) // letters stay in the inbox
        .spawn(bill)?;
    let decode = |raw: &RawMessage| Ok(serde_json::from_slice(&raw.payload)?);
    let intake = orders.consume(inbox.source().decode(decode))?;

    for (id, cents) in [("order-1", 250), ("order-2", 99), ("order-1", 250)] {
        let order = Order {
            user: "ada".to_owned(),
            cents,
        };
        // On the disk when this returns. The second `order-1` is not stored.
        let message = NewMessage::new(order.user.clone(), serde_json::to_vec(&order)?);
        inbox.accept_message(message.id(id)).await?;
    }
    println!("the orders are stored");

    tokio::signal::ctrl_c().await?;
    println!("{}", intake.stop().await);
    println!("{}", orders.drain().await);
    Ok(inbox.close().await?)
}
