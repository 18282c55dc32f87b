//! The handler's answer must be a `Result`.

use keylane::Dispatcher;

#[tokio::main]
async fn main() {
    let _ = Dispatcher::builder(|order: &u64| *order).spawn(|order: u64| async move {
        println!("{order}");
    });
}
