//! Messages that wait to be placed, in several batches. What the router does with the channel, the
//! runners do with the stripes, and the router if no runner may.

use std::time::Duration;

use keylane_rt as rt;
use shuttle_tokio::task::JoinHandle;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, After, Message, Orders, message, task};
use crate::discipline::Delayed;
use crate::{Dispatcher, OnExhausted};

const WAIT: Duration = Duration::from_millis(5);

/// One permit, which the first message keeps for ever. The other ones are placed all the same.
pub(super) async fn while_handlers_wait() {
    let witness = Witness::new();
    let (orders, senders) = one_hangs(&witness);
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    while orders.stats().accepted < 6 {
        rt::yield_now().await;
    }
    let ending = orders.close().within(Duration::from_secs(1));
    witness.conclude(orders, ending, Vec::new()).await;
}

/// The same, and the end comes at any time.
pub(super) async fn meet_the_end() {
    let witness = Witness::new();
    let (orders, senders) = one_hangs(&witness);
    pause().await;
    let ending = any_end(&orders).within(Duration::from_secs(1));
    witness.conclude(orders, ending, senders).await;
}

fn one_hangs(witness: &Witness) -> (Orders, Vec<JoinHandle<()>>) {
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key).concurrency(1);
    let orders = witness.spawn(builder, |message, _| match message.number {
        10 => Act::Hang,
        _ => Act::Succeed,
    });
    let senders = vec![
        witness.send(&orders, 1, &[10, 11]),
        witness.send(&orders, 2, &[20, 21, 22]),
        witness.send(&orders, 3, &[30]),
    ];
    (orders, senders)
}

/// More messages than one turn places, from several senders.
pub(super) async fn of_many_senders() {
    let witness = Witness::new();
    let builder = Dispatcher::builder(|message: &Message| message.key.unwrap_or(0))
        .concurrency(2)
        .quantum(1);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11, 12, 13]),
        witness.send(&orders, 1, &[20, 21]),
        witness.send(&orders, 2, &[30, 31, 32]),
        witness.submit(&orders, 3, &[40]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// A halted lane is handed back at the end, and no message of its key starts behind it: also not one
/// that is delayed, and is placed as the end comes.
pub(super) async fn delayed_behind_a_halt() {
    let witness = Witness::with(1, After::Halt);
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .delayed(Delayed::Pass)
        .on_exhausted(OnExhausted::Halt);
    let orders = witness.spawn(builder, |_, _| Act::Fail);
    let senders = vec![
        witness.send(&orders, 1, &[10]),
        delayed(&witness, &orders, 20),
    ];
    while orders.stats().halted == 0 {
        rt::yield_now().await;
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, senders).await;
}

fn delayed(witness: &Witness, orders: &Orders, number: u32) -> JoinHandle<()> {
    let (witness, orders) = (witness.clone(), orders.clone());
    task(async move {
        let sent = orders.send_when(message(1, number), WAIT).await;
        witness.sent(number, sent);
    })
}
