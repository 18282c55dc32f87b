//! Sends the dead letters of `kafka_json` back to their topic, in the order of their keys.

use std::env::var;

use keylane_kafka::{Producer, Redrive};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let brokers = var("KAFKA").unwrap_or("localhost:9092".to_owned());
    let producer = Producer::builder(&brokers).build()?;
    let report = Redrive::new(&brokers, "orders.dead", producer)
        .run()
        .await?;
    println!("{} letters went back", report.redriven);
    Ok(())
}
