//! The ways to shut down, under load.

use std::time::Duration;

use keylane_rt as rt;
use shuttle_tokio::task::JoinHandle;

use super::Witness;
use super::explore::pause;
use super::witness::{Act, Message, Orders, message, task};
use crate::{Dispatcher, Shutdown};

/// Starts one of the three shutdowns. The scheduler chooses which.
pub(super) fn any_end(orders: &Orders) -> Shutdown<u8, Message, u32, &'static str> {
    if rt::one_in(3) {
        orders.drain()
    } else if rt::one_in(2) {
        orders.close()
    } else {
        orders.abort()
    }
}

fn load(witness: &Witness, concurrency: usize) -> (Orders, Vec<JoinHandle<()>>) {
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .concurrency(concurrency)
        .quantum(2);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11, 12]),
        witness.send(&orders, 2, &[20, 21]),
        witness.submit(&orders, 1, &[30]),
    ];
    (orders, senders)
}

pub(super) async fn drain() {
    let witness = Witness::new();
    let (orders, senders) = load(&witness, 8);
    pause().await;
    let ending = orders.drain();
    witness.conclude(orders, ending, senders).await;
}

pub(super) async fn close() {
    let witness = Witness::new();
    let (orders, senders) = load(&witness, 8);
    pause().await;
    let ending = orders.close();
    witness.conclude(orders, ending, senders).await;
}

pub(super) async fn abort() {
    let witness = Witness::new();
    let (orders, senders) = load(&witness, 1);
    pause().await;
    let ending = orders.abort();
    witness.conclude(orders, ending, senders).await;
}

/// A handler that never ends is dropped when the deadline passes, and not earlier.
pub(super) async fn deadline() {
    let witness = Witness::new();
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key);
    let orders = witness.spawn(builder, |message, _| match message.number {
        10 => Act::Hang,
        _ => Act::Succeed,
    });
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 2, &[20, 21]),
    ];
    pause().await;
    let ending = orders.drain().within(Duration::from_secs(1));
    witness.conclude(orders, ending, senders).await;
}

/// Two shutdowns at once: the stricter one applies, and each returns a report.
pub(super) async fn twice() {
    let witness = Witness::new();
    let (orders, senders) = load(&witness, 2);
    let other = {
        let ending = any_end(&orders);
        shuttle_tokio::spawn(async move { ending.await })
    };
    pause().await;
    let mut report = any_end(&orders).await;
    let mut other = other.await.expect("no end is stopped");
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    assert_eq!(report.accepted, other.accepted);
    assert_eq!(report.interrupted, other.interrupted);
    // The first of the two reports has all of them.
    assert!(report.returned.is_empty() || other.returned.is_empty());
    report.returned.append(&mut other.returned);
    witness.judge(&orders, &report);
    witness.vanish(orders).await;
}

/// All handles are dropped: accepted messages are handled, and then the engine ends.
pub(super) async fn by_the_last_handle() {
    let witness = Witness::new();
    let (orders, senders) = load(&witness, 8);
    let permit = {
        let (witness, orders) = (witness.clone(), orders.clone());
        task(async move {
            let permit = orders.reserve().await.expect("a handle is still here");
            pause().await;
            witness.sent(40, permit.send(message(1, 40)));
        })
    };
    witness.clone().vanish(orders).await;
    for sender in senders.into_iter().chain([permit]) {
        sender.await.expect("no sender is stopped");
    }
    assert_eq!(witness.done(), 7, "all that was accepted is handled");
}
