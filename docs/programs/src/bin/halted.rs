//! A key that stops at its first failure until an operator decides.

use keylane::watching::Event;
use keylane::{Dispatcher, OnExhausted};

async fn book((account, cents): (&'static str, i64)) -> Result<(), &'static str> {
    if cents == 0 {
        return Err("no amount");
    }
    println!("{account}: {cents} cents");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let ledger = Dispatcher::builder(|entry: &(&'static str, i64)| entry.0)
        .on_exhausted(OnExhausted::Halt)
        .spawn(book)?;
    let mut events = ledger.events();
    for entry in [("ada", 100), ("ada", 0), ("ada", 120), ("bob", 7)] {
        ledger.send(entry).await?;
    }

    // ANCHOR: decide
    while let Some(event) = events.recv().await {
        if let Event::Halted { key, why, .. } = event {
            println!("{key} is halted: {why}");
            ledger.lane(&key).skip()?; // or `resume`, or `replace` with a right message
            break;
        }
    }
    // ANCHOR_END: decide
    println!("{}", ledger.drain().await);
    Ok(())
}
