//! Orders of one user one after the other, orders of different users at the same time.
//!
//! ```text
//! cargo run --example hello
//! RUST_LOG=keylane=info cargo run --example hello   # with a line for each attempt, on stderr
//! ```
//!
//! Ada's second order waits for her first. Bob's does not wait, and is done before both.

use std::convert::Infallible;
use std::time::Duration;

use keylane::Dispatcher;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    examples::log_to_stderr("warn");
    let orders = Dispatcher::builder(|(user, _): &(&'static str, u64)| *user).spawn(
        |(user, ms): (&'static str, u64)| async move {
            println!("{user}: an order of {ms} ms starts");
            tokio::time::sleep(Duration::from_millis(ms)).await;
            println!("{user}: the order of {ms} ms is done");
            Ok::<_, Infallible>(())
        },
    )?;
    for order in [("ada", 300), ("ada", 100), ("bob", 50)] {
        orders.send(order).await?;
    }
    println!("{}", orders.drain().await);
    Ok(())
}
