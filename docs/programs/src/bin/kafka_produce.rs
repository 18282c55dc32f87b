//! Orders for `kafka_json`. The last two become dead letters: an order of nothing, and no JSON.

use std::env::var;

use keylane::source::RawMessage;
use keylane_kafka::Producer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let brokers = var("KAFKA").unwrap_or("localhost:9092".to_owned());
    let producer = Producer::builder(brokers).build()?;
    for (key, payload) in [
        ("ada", r#"{"user": "ada", "cents": 250}"#),
        ("bob", r#"{"user": "bob", "cents": 99}"#),
        ("ada", r#"{"user": "ada", "cents": 0}"#),
        ("bob", "12 cents"),
    ] {
        // Returns when all replicas have it.
        producer
            .send("orders", &RawMessage::new(payload).key(key))
            .await?;
    }
    Ok(())
}
