//! Lanes that coalesce.

use std::time::Duration;

use keylane_rt as rt;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, After, Message, message};
use crate::discipline::Coalesce;
use crate::{Builder, Dispatcher, Overflow, Retry};

fn builder(
    coalesce: Coalesce<Message>,
) -> Builder<
    super::witness::Key,
    Message,
    &'static str,
    impl Fn(&Message) -> Option<u8> + Send + Sync + 'static,
> {
    Dispatcher::key_by_opt(|message: &Message| message.key).coalesce(coalesce)
}

/// Merges two messages into the newer one.
fn newer() -> Coalesce<Message> {
    Coalesce::merge(|_: &Message, new: &Message| new.clone())
}

/// The last message to start is the last one accepted, so it is the last one of a producer.
fn judge_last(witness: &Witness) {
    let started = witness.started(1);
    assert!(matches!(started.last(), Some(12 | 21)), "{started:?}");
}

/// A new message replaces the waiting one, or the waiting one has just started.
pub(super) async fn latest_meets_completion() {
    let witness = Witness::new();
    let concurrency = if rt::one_in(2) { 1 } else { 8 };
    let builder = builder(Coalesce::keep_latest())
        .concurrency(concurrency)
        .quantum(1);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11, 12]),
        witness.submit(&orders, 1, &[20, 21]),
        witness.submit(&orders, 2, &[30]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    judge_last(&witness);
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// The waiting message stays while the head fails and is retried.
pub(super) async fn first_and_retries() {
    let witness = Witness::with(2, After::Discard);
    let builder = builder(Coalesce::keep_first())
        .retry(Retry::fixed(Duration::from_millis(5)).max_attempts(2));
    let orders = witness.spawn(builder, |message, attempt| {
        if message.number % 10 < 2 && attempt == 1 {
            Act::Fail
        } else {
            Act::Succeed
        }
    });
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

/// A message is merged outside its lane, and at that moment a runner picks the lane.
pub(super) async fn merge_meets_the_pick() {
    let witness = Witness::new();
    let builder = builder(newer())
        .concurrency(1)
        .quantum(1)
        .capacity(4)
        .lane_capacity(3, Overflow::Wait);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11, 12]),
        witness.submit(&orders, 1, &[20, 21]),
        witness.send(&orders, 2, &[30, 31]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    judge_last(&witness);
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// The shutdown comes while messages are merged, wait, and are replaced by an operator.
pub(super) async fn meets_the_end() {
    let witness = Witness::new();
    let coalesce = if rt::one_in(2) {
        newer()
    } else {
        Coalesce::keep_latest()
    };
    let orders = witness.spawn(builder(coalesce).quantum(1), |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11, 12]),
        witness.send(&orders, 1, &[20, 21]),
        witness.send(&orders, 2, &[30]),
    ];
    pause().await;
    let _ = orders.lane(&3).replace(message(3, 40));
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}
