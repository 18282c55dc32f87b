//! Orders in sixteen streams of Redis or Valkey, shared by the members of a group.

use std::env::var;
use std::time::Duration;

use keylane::source::Source;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_redis::{Redis, StreamSource, StreamTrim};
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
    let source = StreamSource::builder(&redis, "billing")
        .partitions("orders", 16) // the streams `orders:0` to `orders:15`
        .dead_letters("orders.dead")
        .trim(StreamTrim::Settled) // cuts off what all groups have acked
        .build()?;

    let orders = Dispatcher::builder(|order: &Order| order.user.clone())
        .retry(Retry::exponential(Duration::from_millis(50)).max_attempts(5))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(bill)?;
    let source = source.decode(|raw| Ok(serde_json::from_slice(&raw.payload)?));
    let intake = orders.consume(source)?;

    tokio::signal::ctrl_c().await?;
    println!("{}", intake.stop().await);
    Ok(())
}
