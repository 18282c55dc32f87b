//! Messages that are given up, for what the log says of them.

use std::time::Duration;

use keylane::source::{RawMessage, Source};
use keylane::{Dispatcher, OnExhausted, Retry};

use super::until::until;
use super::wait::within;

/// Consumes a source with a handler that always fails, until so many messages are given up, each
/// after two attempts. Then the source is stopped.
///
/// # Panics
///
/// Panics if that takes longer than two minutes.
pub async fn give_up(source: impl Source<Message = RawMessage>, messages: u64) {
    let orders = Dispatcher::key_by_opt(|order: &RawMessage| order.key.clone())
        .retry(Retry::fixed(Duration::from_millis(1)).max_attempts(2))
        .on_exhausted(OnExhausted::Discard)
        .spawn(|_: RawMessage| async { Err::<(), _>("no") })
        .expect("a dispatcher");
    let intake = orders.consume(source).expect("a source");
    until(|| intake.stats().acked >= messages).await;
    within(async { intake.stop().await }).await;
}
