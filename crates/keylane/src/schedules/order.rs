//! Submitting messages and completing them.

use super::Witness;
use super::witness::{Act, Message, task};
use crate::Dispatcher;

/// Three producers, two of them on the same key.
pub(super) async fn two_keys_three_producers() {
    let witness = Witness::new();
    let builder = Dispatcher::builder(|message: &Message| message.key.unwrap_or(0)).quantum(2);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 1, &[20, 21]),
        witness.submit(&orders, 2, &[30, 31]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// One permit: all lanes wait for the same runner, and each lane hands over to the next.
pub(super) async fn one_runner_for_all() {
    let witness = Witness::new();
    let builder = Dispatcher::builder(|message: &Message| message.key.unwrap_or(0))
        .concurrency(1)
        .quantum(1);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.submit(&orders, 2, &[20, 21]),
        witness.submit(&orders, 3, &[30]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    assert_eq!(witness.done(), 5, "every receipt was answered");
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// Keyless messages need no lane and do not disturb the lanes.
pub(super) async fn keyless_beside_keys() {
    let witness = Witness::new();
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key).concurrency(2);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let keyless = {
        let (witness, orders) = (witness.clone(), orders.clone());
        task(async move {
            for number in [20, 21] {
                let sent = orders.submit(Message { key: None, number }).await;
                let receipt = witness.sent(number, sent).expect("it stays open");
                let _ = witness.answered(number, receipt).await;
            }
        })
    };
    let keyed = witness.send(&orders, 1, &[10, 11]);
    for sender in [keyless, keyed] {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}
