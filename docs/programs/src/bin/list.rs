//! Orders in a list of Redis or Valkey, pushed with `LPUSH`.

use std::env::var;
use std::time::Duration;

use keylane::consume::IntakeSettings;
use keylane::source::Source;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_redis::{ListKey, ListQueue, Redis};
use serde::Deserialize;

#[derive(Clone, Deserialize)]
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
    let redis = Redis::at(&var("REDIS").unwrap_or("redis://localhost".to_owned()))?;
    let queue = ListQueue::builder(&redis, "orders")
        .key(ListKey::json("user")) // the same in all workers
        .dead_letters()
        .build()?;

    let orders = Dispatcher::builder(|order: &Order| order.user.clone())
        .retry(Retry::exponential(Duration::from_millis(50)).max_attempts(5))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(bill)?;
    let source = queue
        .source()
        .decode(|raw| Ok(serde_json::from_slice(&raw.payload)?));
    // With a small `held` several workers share a short list.
    let intake = orders.consume_with(source, IntakeSettings::new().held(512))?;

    tokio::signal::ctrl_c().await?;
    println!("{}", intake.stop().await);
    for letter in queue.letters(100).await? {
        println!("dead letter: {letter:?}"); // `queue.redrive(100)` puts them back
    }
    Ok(())
}
