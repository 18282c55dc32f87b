//! Two lanes become eight under load, and no user's order suffers.
//!
//! ```text
//! cargo run --example resize
//! RUST_LOG=keylane=info cargo run --example resize   # with a line for each attempt, on stderr
//! ```
//!
//! Forty users send orders as fast as they are taken, and each takes about a millisecond. A user that moves
//! drains from its old lane before the new one starts an order of it; no other user waits for that.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::Dispatcher;
use keylane::routing::HashLanes;
use tokio::time::{Instant, sleep};

const USERS: usize = 40;
const TWO: NonZeroUsize = NonZeroUsize::new(2).expect("it is not zero");

#[derive(Clone, Copy)]
struct Order {
    user: usize,
    number: u64,
}

/// The last order of each user, and how often one was not the next.
struct Ledger {
    last: Mutex<[u64; USERS]>,
    breaks: AtomicU64,
}

impl Ledger {
    fn note(&self, order: Order) {
        let Ok(mut last) = self.last.lock() else {
            return;
        };
        let before = std::mem::replace(&mut last[order.user], order.number);
        self.breaks
            .fetch_add(u64::from(order.number != before + 1), Ordering::Relaxed);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    examples::log_to_stderr("warn");
    let ledger = Arc::new(Ledger {
        last: Mutex::new([0; USERS]),
        breaks: AtomicU64::new(0),
    });
    let seen = Arc::clone(&ledger);
    let orders: HashLanes<Order> = Dispatcher::hash_lanes(TWO, |order: &Order| order.user)
        .capacity(128)
        .spawn(move |order: Order| {
            seen.note(order);
            async {
                sleep(Duration::from_millis(1)).await;
                Ok::<(), Infallible>(())
            }
        })?;
    for user in 0..USERS {
        let (orders, mut number) = (orders.clone(), 1);
        tokio::spawn(async move {
            while orders.send(Order { user, number }).await.is_ok() {
                number += 1;
            }
        });
    }

    let before = throughput(&orders).await;
    let homes: Vec<_> = (0..USERS).map(|user| orders.lane_of(&user)).collect();
    let began = Instant::now();
    orders.resize(8).await?;
    println!("2 lanes became 8 in {:.1?}, under load", began.elapsed());
    let moved = (0..USERS).filter(|user| orders.lane_of(user) != homes[*user]);
    let moved: Vec<_> = moved.map(|user| user.to_string()).collect();
    println!(
        "{} of {USERS} users moved: {}",
        moved.len(),
        moved.join(" ")
    );
    let after = throughput(&orders).await;
    println!("orders per second: {before:.0} before, {after:.0} after");

    let report = orders.close().await;
    let breaks = ledger.breaks.load(Ordering::Relaxed);
    println!(
        "{} orders done, per-user order breaks: {breaks}",
        report.done
    );
    Ok(())
}

/// Orders done per second, for a while.
async fn throughput(orders: &HashLanes<Order>) -> f64 {
    let (began, before) = (Instant::now(), orders.stats().done);
    sleep(Duration::from_secs(1)).await;
    (orders.stats().done - before) as f64 / began.elapsed().as_secs_f64()
}
