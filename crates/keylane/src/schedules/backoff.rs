//! Heads that wait for their next attempt.

use std::time::Duration;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, After, Message};
use crate::{Builder, Dispatcher, Retry};

const WAIT: Duration = Duration::from_millis(5);

fn builder(
    attempts: u32,
) -> Builder<
    super::witness::Key,
    Message,
    &'static str,
    impl Fn(&Message) -> Option<u8> + Send + Sync + 'static,
> {
    Dispatcher::key_by_opt(|message: &Message| message.key)
        .retry(Retry::fixed(WAIT).max_attempts(attempts))
}

/// The first message of each producer fails at its first attempt.
fn fails_at_first(message: &Message, attempt: u32) -> Act {
    if message.number.is_multiple_of(10) && attempt == 1 {
        Act::Fail
    } else {
        Act::Succeed
    }
}

/// While a head waits for its next attempt, no message behind it starts.
pub(super) async fn retries_come_first() {
    let witness = Witness::with(3, After::Discard);
    let orders = witness.spawn(builder(3), fails_at_first);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 1, &[20]),
        witness.submit(&orders, 2, &[30, 31]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// A failing key takes no capacity up to `stalled_capacity`, and delays no other key.
pub(super) async fn others_go_on() {
    let witness = Witness::with(2, After::Discard);
    let builder = builder(2).capacity(2).stalled_capacity(1).concurrency(1);
    let orders = witness.spawn(builder, |message, _| match message.key {
        Some(1) => Act::Fail,
        _ => Act::Succeed,
    });
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.submit(&orders, 2, &[20, 21]),
        witness.send(&orders, 1, &[30]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// The shutdown comes while heads, with and without a key, wait for their next attempt.
pub(super) async fn meets_the_end() {
    let witness = Witness::with(3, After::Discard);
    let orders = witness.spawn(builder(3), fails_at_first);
    let keyless = Message {
        key: None,
        number: 30,
    };
    let mut senders = vec![
        witness.submit(&orders, 1, &[10, 11, 12]),
        witness.send(&orders, 2, &[20, 21]),
    ];
    let receipt = witness.sent(30, orders.submit(keyless).await);
    if let Some(receipt) = receipt {
        let witness = witness.clone();
        senders.push(super::witness::task(async move {
            let _ = witness.answered(30, receipt).await;
        }));
    }
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}

/// At its time-out an attempt is dropped, and then its key moves on.
pub(super) async fn timed_out_attempts() {
    let witness = Witness::with(2, After::Discard);
    let builder = builder(2).attempt_timeout(WAIT);
    let orders = witness.spawn(builder, |message, attempt| {
        match (message.number, attempt) {
            (10, 1) | (20, _) => Act::Hang,
            _ => Act::Succeed,
        }
    });
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.submit(&orders, 2, &[20, 21]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}
