//! Dead letters of an inbox: looked at, and put back once the fault is mended.

use std::env::var;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylane::source::RawMessage;
use keylane::{Dispatcher, OnExhausted, Retry};
use keylane_inbox::Inbox;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let inbox = Inbox::open(var("INBOX").unwrap_or("orders".to_owned())).await?;
    let bank_is_up = Arc::new(AtomicBool::new(false));

    let is_up = Arc::clone(&bank_is_up);
    let orders = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
        .retry(Retry::fixed(Duration::from_millis(10)).max_attempts(3))
        .on_exhausted(OnExhausted::AtSource)
        .spawn(move |order: RawMessage| {
            let is_up = is_up.load(Ordering::Relaxed);
            async move {
                println!("an attempt at {:?}", order.payload);
                if is_up {
                    Ok(())
                } else {
                    Err("the bank does not answer")
                }
            }
        })?;
    let intake = orders.consume(inbox.source())?;
    inbox.accept("ada", "250 cents").await?;

    // ANCHOR: redrive
    let mut letters = Vec::new();
    while letters.is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        letters = inbox.letters().list(0, 100).await?; // a page of a hundred
    }
    for letter in &letters {
        println!("{} after {} attempts", letter.error, letter.attempts);
    }
    bank_is_up.store(true, Ordering::Relaxed);
    let all = letters.iter().map(|letter| letter.message.sequence);
    let back = inbox.letters().redrive(all).await?;
    println!("{} went back", back.len());
    // ANCHOR_END: redrive

    while inbox.stats().await?.waiting > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{}", intake.stop().await);
    Ok(inbox.close().await?)
}
