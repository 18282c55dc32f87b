//! The letters of a topic: listed, and on the page of a console.

use std::env::var;

use keylane_console::{Action, Console};
use keylane_kafka::{KafkaLetters, Producer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let brokers = var("KAFKA").unwrap_or("localhost:9092".to_owned());
    let producer = Producer::builder(&brokers).build()?;
    // ANCHOR: console
    let letters = KafkaLetters::new(&brokers, "orders.dead", producer);
    let console = Console::builder()
        .letters("orders", letters)
        .allow(Action::ALL)
        .token(var("CONSOLE_TOKEN")?) // of 16 bytes and more
        .build()?;
    // ANCHOR_END: console
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    console.serve(listener).await?;
    Ok(())
}
