//! A keyed semaphore for work that stays in its caller's task: two accounts, and deposits that read a
//! balance, wait and write it back.
//!
//! ```console
//! cargo run --example keyed_semaphore
//! ```

use std::cell::Cell;
use std::time::Duration;

use futures::future::join_all;
use keylane_semaphore::{AcquireError, KeyedSemaphore};
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    examples::log_to_stderr("warn");
    let semaphore = KeyedSemaphore::builder()
        .concurrency(64)
        .lane_capacity(100)
        .build()?;
    // Neither `Send` nor `'static`: the deposits borrow it, and nothing is spawned.
    let accounts = [("alice", Cell::new(0)), ("bob", Cell::new(0))];

    let deposits = (0..20).map(|n| {
        let (name, balance) = &accounts[n % 2];
        let semaphore = &semaphore;
        async move {
            let _permit = semaphore.acquire(*name).await?;
            let before = balance.get();
            // Without the permit, other deposits would write meanwhile and be lost.
            sleep(Duration::from_millis(5)).await;
            balance.set(before + 10);
            Ok::<_, AcquireError<_>>(())
        }
    });
    for deposit in join_all(deposits).await {
        deposit?;
    }
    for (name, balance) in &accounts {
        println!("{name}: {} of 100", balance.get());
    }
    println!("lanes left: {}", semaphore.lanes());
    Ok(())
}
