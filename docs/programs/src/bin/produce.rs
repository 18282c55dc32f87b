//! A producer in Rust: a message into the list `orders`, and one into the streams of `stream`.

use std::env::var;

use keylane::source::RawMessage;
use keylane_redis::{ListQueue, Redis, StreamSink, partition_of};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redis = Redis::at(&var("REDIS").unwrap_or("redis://localhost".to_owned()))?;
    let message = RawMessage::new(r#"{"user": "ada", "cents": 250}"#).key("ada");

    // ANCHOR: list
    let list = ListQueue::builder(&redis, "orders").build()?;
    list.push(&message).await?; // stores the key beside the payload
    // ANCHOR_END: list

    // ANCHOR: stream
    let streams = StreamSink::partitions(&redis, "orders", 16)?;
    streams.push(&message).await?; // into the partition of its key
    // ANCHOR_END: stream
    println!("it is in orders:{}", partition_of(b"ada", 16));
    Ok(())
}
