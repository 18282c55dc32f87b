//! A consumer that leaves in time when a service manager or Kubernetes asks it to.

use std::env::var;
use std::time::Duration;

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted};
use keylane_redis::{ListKey, ListQueue, Redis};
use tokio::signal::unix::{SignalKind, signal};

// ANCHOR: asked
/// Returns at SIGTERM, and at Ctrl-C.
async fn asked_to_stop() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        pressed = tokio::signal::ctrl_c() => pressed,
    }
}
// ANCHOR_END: asked

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let redis = Redis::at(&var("REDIS").unwrap_or("redis://localhost".to_owned()))?;
    let queue = ListQueue::builder(&redis, "orders")
        .key(ListKey::json("user"))
        .build()?;
    let orders = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(|raw: RawMessage| async move {
            println!("{raw:?}");
            Ok::<_, std::io::Error>(())
        })?;
    let intake = orders.consume(queue.source())?;

    // ANCHOR: stop
    asked_to_stop().await?;
    // Shorter than the time after which the service manager kills the process.
    println!("{}", intake.stop().within(Duration::from_secs(20)).await);
    println!("{}", orders.drain().within(Duration::from_secs(5)).await);
    // ANCHOR_END: stop
    Ok(())
}
