//! Turns by key for work that stays where it is: two accounts, and transfers that read, wait and write.
//!
//! ```console
//! cargo run --example turnstile
//! ```

use std::cell::Cell;
use std::time::Duration;

use futures::future::join_all;
use keylane::Turnstile;
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lanes = Turnstile::builder()
        .concurrency(64)
        .lane_capacity(100)
        .build()?;
    // Not `Send`, and borrowed by the work: nothing is spawned.
    let accounts = [("alice", Cell::new(0)), ("bob", Cell::new(0))];

    let deposits = (0..20).map(|n| {
        let (name, balance) = &accounts[n % 2];
        let lanes = &lanes;
        async move {
            let _turn = lanes.turn(*name).await?;
            let seen = balance.get();
            // Without the turn, others would write in between, and their deposits would be lost.
            sleep(Duration::from_millis(5)).await;
            balance.set(seen + 10);
            Ok::<_, keylane::EnterError<()>>(())
        }
    });
    for deposit in join_all(deposits).await {
        deposit?;
    }
    for (name, balance) in &accounts {
        println!("{name}: {} of 100", balance.get());
    }
    println!("lanes left: {}", lanes.lanes());
    Ok(())
}
