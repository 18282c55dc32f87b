//! Full lanes, and the senders that wait for room in them.

use std::time::Duration;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, After, Message, Sink, message, task};
use crate::error::SendError;
use crate::{Dispatcher, OnExhausted, Overflow, Retry};

/// Every waiting sender gets in, although one sender gives up at some moment.
pub(super) async fn wait() {
    let witness = Witness::new();
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .lane_capacity(1, Overflow::Wait)
        .capacity(3);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.send(&orders, 1, &[10, 11]),
        witness.send(&orders, 1, &[20, 21]),
        witness.send(&orders, 2, &[40]),
    ];
    let gives_up = witness.send(&orders, 1, &[30, 31]);
    pause().await;
    gives_up.abort();
    for sender in senders {
        sender.await.expect("this sender is not stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, vec![gives_up]).await;
}

/// The head fails and its lane is full. The messages behind the head take no capacity.
pub(super) async fn wait_behind_a_stalled_head() {
    let witness = Witness::with(2, After::Discard);
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .retry(Retry::fixed(Duration::from_millis(5)).max_attempts(2))
        .lane_capacity(2, Overflow::Wait)
        .stalled_capacity(2)
        .capacity(2);
    let orders = witness.spawn(builder, |message, attempt| {
        if message.number.is_multiple_of(10) && attempt == 1 {
            Act::Fail
        } else {
            Act::Succeed
        }
    });
    let senders = vec![
        witness.send(&orders, 1, &[10, 11, 12]),
        witness.send(&orders, 1, &[20, 21]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// The shutdown releases all senders that wait at a full lane.
pub(super) async fn wait_meets_the_end() {
    let witness = Witness::new();
    let builder =
        Dispatcher::key_by_opt(|message: &Message| message.key).lane_capacity(1, Overflow::Wait);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.send(&orders, 1, &[10, 11, 12]),
        witness.submit(&orders, 1, &[20, 21]),
    ];
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}

/// A refused sender tries again until it finds room.
pub(super) async fn reject() {
    let witness = Witness::new();
    let builder =
        Dispatcher::key_by_opt(|message: &Message| message.key).lane_capacity(1, Overflow::Reject);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders: Vec<_> = [[10, 11], [20, 21]]
        .into_iter()
        .map(|numbers| {
            let (witness, orders) = (witness.clone(), orders.clone());
            task(async move {
                for number in numbers {
                    let sent = loop {
                        match orders.send(message(1, number)).await {
                            Err(SendError::LaneFull(_)) => keylane_rt::yield_now().await,
                            sent => break sent,
                        }
                    };
                    witness.sent(number, sent).expect("it stays open");
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// The oldest message behind the head is dropped and counted.
pub(super) async fn drop_oldest() {
    let witness = Witness::new();
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .lane_capacity(2, Overflow::DropOldest);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11, 12]),
        witness.submit(&orders, 1, &[20, 21]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// Messages that find no room go to the sink, while other messages of the key are handled.
pub(super) async fn dead_letter() {
    let witness = Witness::with(1, After::Letter);
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .lane_capacity(1, Overflow::DeadLetter)
        .on_exhausted(OnExhausted::dead_letter(Sink::new(&witness, 1)));
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.send(&orders, 1, &[10, 11]),
        witness.submit(&orders, 1, &[20]),
        witness.send(&orders, 1, &[30]),
    ];
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}
