//! Senders that wait for capacity.

use super::Witness;
use super::explore::pause;
use super::witness::{Act, Message, message, task};
use crate::Dispatcher;
use crate::error::TrySendError;

/// Capacity for one message. One of the waiting senders gives up.
pub(super) async fn of_one() {
    let witness = Witness::new();
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key).capacity(1);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 1, &[20]),
    ];
    let gives_up = witness.send(&orders, 2, &[30, 31]);
    let reserves = {
        let (witness, orders) = (witness.clone(), orders.clone());
        task(async move {
            let unused = orders.reserve().await.expect("it stays open");
            pause().await;
            drop(unused);
            let permit = orders.reserve().await.expect("it stays open");
            let tried = orders.try_send(message(2, 40));
            assert!(matches!(tried, Err(TrySendError::Full(_))), "{tried:?}");
            witness.sent(41, permit.send(message(2, 41)));
        })
    };
    pause().await;
    gives_up.abort();
    for sender in senders.into_iter().chain([reserves]) {
        sender.await.expect("this sender is not stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, vec![gives_up]).await;
}

/// The same with bytes: a message too large for the free bytes does not block a smaller one.
pub(super) async fn of_bytes() {
    let witness = Witness::new();
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .capacity(3)
        .capacity_bytes(5, |message: &Message| message.number as usize / 10);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 1, &[20, 21]),
        witness.submit(&orders, 2, &[50]),
    ];
    let gives_up = witness.send(&orders, 2, &[40]);
    pause().await;
    gives_up.abort();
    for sender in senders {
        sender.await.expect("this sender is not stopped");
    }
    let left = orders
        .engine
        .room
        .bytes
        .as_ref()
        .expect("bytes are limited");
    let ending = orders.drain();
    let report = ending.await;
    assert_eq!(left.available_permits(), 5, "{report}");
    witness.judge(&orders, &report);
    witness.vanish(orders).await;
}
