//! The handler must take the message that the key function was made for.

use keylane::Dispatcher;

#[tokio::main]
async fn main() {
    let _ = Dispatcher::builder(|order: &u64| *order)
        .spawn(|order: String| async move { Ok::<usize, std::io::Error>(order.len()) });
}
