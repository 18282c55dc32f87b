//! Jobs that wait for a rate, and for their priority class.

use std::time::Duration;

use keylane_rt::clock;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, Message, Orders, task};
use crate::{Builder, Dispatcher, Rate};

const EVERY: Duration = Duration::from_millis(5);

/// Two producers send three messages with two keys, and one message without a key.
async fn loaded(witness: &Witness, orders: &Orders) -> Vec<shuttle_tokio::task::JoinHandle<()>> {
    let senders = vec![
        witness.submit(orders, 1, &[10, 11]),
        witness.send(orders, 2, &[20]),
    ];
    let keyless = Message {
        key: None,
        number: 30,
    };
    let receipt = witness.sent(30, orders.submit(keyless).await);
    let answered = receipt.map(|receipt| {
        let witness = witness.clone();
        task(async move {
            let _ = witness.answered(30, receipt).await;
        })
    });
    senders.into_iter().chain(answered).collect()
}

fn builder() -> Builder<
    super::witness::Key,
    Message,
    &'static str,
    impl Fn(&Message) -> Option<u8> + Send + Sync + 'static,
> {
    Dispatcher::key_by_opt(|message: &Message| message.key).quantum(2)
}

/// A job that the rate refuses runs when the rate allows it, and no job runs earlier.
pub(super) async fn lets_all_go_in_time() {
    let witness = Witness::new();
    let since = clock::now();
    let orders = witness.spawn(builder().rate(Rate::per(1, EVERY)), |_, _| Act::Succeed);
    for sender in loaded(&witness, &orders).await {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
    let took = clock::now() - since;
    assert!(took >= 3 * EVERY, "four messages started within {took:?}");
}

/// The shutdown comes while jobs wait for the rate.
pub(super) async fn meets_the_end() {
    let witness = Witness::new();
    let builder = builder().rate(Rate::per(1, EVERY).burst(2)).concurrency(1);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = loaded(&witness, &orders).await;
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}

/// Priority classes and a rate do not change the order within a key.
pub(super) async fn of_classes() {
    let witness = Witness::new();
    let builder = builder()
        .rate(Rate::per(1, EVERY).burst(2))
        .priority(3, |message: &Message| (message.number % 4) as u8);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = loaded(&witness, &orders).await;
    let ending = orders.drain();
    witness.conclude(orders, ending, senders).await;
}
