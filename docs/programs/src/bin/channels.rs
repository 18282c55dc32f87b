//! Orders of each user in their order: with a channel and a task for each, and with a dispatcher.

use std::collections::HashMap;

use keylane::{Dispatcher, OnExhausted};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

#[derive(Clone)]
struct Order {
    user: &'static str,
    cents: u64,
}

async fn bill(order: Order) -> Result<(), &'static str> {
    if order.cents == 0 {
        return Err("an order of nothing");
    }
    println!("{} pays {} cents", order.user, order.cents);
    Ok(())
}

fn orders() -> [Order; 3] {
    [("ada", 250), ("bob", 99), ("ada", 120)].map(|(user, cents)| Order { user, cents })
}

async fn before() -> Result<(), Box<dyn std::error::Error>> {
    let (mut senders, mut tasks) = (HashMap::new(), JoinSet::new());
    for order in orders() {
        // ANCHOR: before
        let sender = senders.entry(order.user).or_insert_with(|| {
            let (sender, mut receiver) = mpsc::channel(100);
            tasks.spawn(async move {
                while let Some(order) = receiver.recv().await {
                    if let Err(why) = bill(order).await {
                        eprintln!("not billed: {why}");
                    }
                }
            });
            sender
        });
        sender.send(order).await?;
        // ANCHOR_END: before
    }
    drop(senders); // the tasks end when they have received everything
    tasks.join_all().await;
    Ok(())
}

async fn after() -> Result<(), Box<dyn std::error::Error>> {
    // ANCHOR: after
    let dispatcher = Dispatcher::builder(|order: &Order| order.user)
        .on_exhausted(OnExhausted::Discard)
        .spawn(bill)?;
    for order in orders() {
        dispatcher.send(order).await?;
    }
    println!("{}", dispatcher.drain().await);
    // ANCHOR_END: after
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    before().await?;
    after().await
}
