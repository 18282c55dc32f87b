//! The handler's future must be `Send`: it may be polled by any thread.

use std::rc::Rc;

use keylane::Dispatcher;

#[tokio::main]
async fn main() {
    let _ = Dispatcher::builder(|order: &u64| *order).spawn(|order: u64| async move {
        let held = Rc::new(order);
        tokio::task::yield_now().await;
        Ok::<u64, std::io::Error>(*held)
    });
}
