//! Orders in memory: in order for each user, and many users at once.

use std::time::Duration;

use keylane::{Dispatcher, OnExhausted, Retry};

#[derive(Clone)]
struct Order {
    user: &'static str,
    cents: u64,
}

// ANCHOR: handler
async fn bill(order: Order) -> Result<u64, &'static str> {
    if order.cents == 0 {
        return Err("an order of nothing");
    }
    println!("{} pays {} cents", order.user, order.cents);
    Ok(order.cents)
}
// ANCHOR_END: handler

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init(); // failures are in the log
    let orders = Dispatcher::builder(|order: &Order| order.user)
        .attempt_timeout(Duration::from_secs(5))
        .retry(Retry::exponential(Duration::from_millis(50)).max_attempts(3))
        .on_exhausted(OnExhausted::Discard)
        .spawn(bill)?;

    for (user, cents) in [("ada", 250), ("bob", 99), ("ada", 0), ("ada", 120)] {
        orders.send(Order { user, cents }).await?; // returns when it is accepted
    }
    let order = Order {
        user: "bob",
        cents: 5,
    };
    let receipt = orders.submit(order).await?; // resolves with the handler's answer
    println!("bob's receipt: {} cents", receipt.await?);

    println!("{}", orders.drain().await); // finishes what was accepted
    Ok(())
}
