//! What a dispatcher says of itself: counters, the keys that wait longest, and events.

use std::time::Duration;

use keylane::watching::HotBy;
use keylane::{Dispatcher, OnExhausted, Retry};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // ANCHOR: log
    tracing_subscriber::fmt().init();
    // ANCHOR_END: log
    let orders = Dispatcher::builder(|order: &(&'static str, u64)| order.0)
        .retry(Retry::fixed(Duration::from_secs(60)))
        .on_exhausted(OnExhausted::Halt)
        .trace_keys() // keys as text in the log, and not as hashes
        .spawn(|(_, cents): (&str, u64)| async move {
            if cents == 0 {
                Err("nothing to bill")
            } else {
                Ok(())
            }
        })?;
    for order in [("ada", 0), ("ada", 250), ("bob", 99)] {
        orders.send(order).await?;
    }
    while orders.stats().backing_off == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    // ANCHOR: look
    let stats = orders.stats();
    println!(
        "{} accepted, {} done, {} wait to be tried again",
        stats.accepted, stats.done, stats.backing_off
    );
    for hot in orders.hottest(3, HotBy::Age).await {
        println!("{}: {} messages, {:?} old", hot.key, hot.depth, hot.age);
        if let Some(lane) = orders.inspect(&hot.key) {
            println!("it waits because of {:?}", lane.state);
        }
    }
    // ANCHOR_END: look
    // ANCHOR: health
    let health = orders.health(); // and `intake.health()` of each source
    println!("ready: {}, live: {}", health.ready, health.live);
    for reason in &health.reasons {
        println!("{reason}"); // what is wrong, and what to do
    }
    // ANCHOR_END: health
    println!("{}", orders.abort().await);
    Ok(())
}
