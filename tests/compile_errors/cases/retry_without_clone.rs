//! A message that is to be tried again must be `Clone`.

use std::time::Duration;

use keylane::{Dispatcher, Retry};

struct Order(u64);

#[tokio::main]
async fn main() {
    let _ = Dispatcher::builder(|order: &Order| order.0)
        .retry(Retry::fixed(Duration::from_secs(1)))
        .spawn(|order: Order| async move { Ok::<u64, std::io::Error>(order.0) });
}
