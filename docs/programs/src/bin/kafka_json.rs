//! Orders in a topic, as JSON, with a topic for the dead letters.

use std::env::var;
use std::time::Duration;

use keylane::source::Source;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_kafka::KafkaSource;
use serde::Deserialize;

#[derive(Clone, Deserialize)]
struct Order {
    user: String,
    cents: u64,
}

async fn bill(order: Order) -> Result<(), &'static str> {
    if order.cents == 0 {
        return Err("an order of nothing");
    }
    println!("{} pays {} cents", order.user, order.cents);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let brokers = var("KAFKA").unwrap_or("localhost:9092".to_owned());
    let source = KafkaSource::builder(brokers, "billing")
        .topic("orders")
        .dead_letters("orders.dead") // the topic must exist
        .build()?;

    let orders = Dispatcher::builder(|order: &Order| order.user.clone())
        .retry(Retry::exponential(Duration::from_millis(50)).max_attempts(3))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(bill)?;
    // A payload that is no order becomes a dead letter at once.
    let source = source.decode(|raw| Ok(serde_json::from_slice(&raw.payload)?));
    let intake = orders.consume(source)?;

    tokio::signal::ctrl_c().await?;
    println!("{}", intake.stop().within(Duration::from_secs(10)).await);
    Ok(())
}
