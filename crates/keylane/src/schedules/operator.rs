//! An operator pauses, resumes and purges keys.

use keylane_rt as rt;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, Message, Orders, task};
use crate::discipline::Coalesce;
use crate::{Builder, Dispatcher};

fn builder() -> Builder<
    super::witness::Key,
    Message,
    &'static str,
    impl Fn(&Message) -> Option<u8> + Send + Sync + 'static,
> {
    Dispatcher::key_by_opt(|message: &Message| message.key).quantum(1)
}

/// Plain first in, first out; or coalescing.
fn any(witness: &Witness) -> Orders {
    if rt::one_in(2) {
        witness.spawn(builder(), |_, _| Act::Succeed)
    } else {
        let builder = builder().coalesce(Coalesce::keep_latest());
        witness.spawn(builder, |_, _| Act::Succeed)
    }
}

/// Pauses and resumes twice. While the key is paused, only what a runner already holds may start.
async fn pause_and_resume(orders: &Orders) {
    for _ in 0..2 {
        let lane = orders.lane(&1);
        lane.pause();
        pause().await;
        // The shutdown may have come meanwhile.
        let _ = lane.resume();
        pause().await;
    }
}

/// A key that was paused and is resumed goes on, even if its head finished meanwhile.
pub(super) async fn pause_meets_completion() {
    let witness = Witness::new();
    let orders = any(&witness);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11, 12]),
        witness.submit(&orders, 1, &[20]),
        witness.submit(&orders, 2, &[30]),
    ];
    pause_and_resume(&orders).await;
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// The messages of a paused key are returned by the shutdown, or the key is resumed before it.
pub(super) async fn pause_meets_the_end() {
    let witness = Witness::new();
    let orders = any(&witness);
    let mut senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 1, &[20]),
    ];
    let operator = {
        let orders = orders.clone();
        task(async move { pause_and_resume(&orders).await })
    };
    pause().await;
    let ending = any_end(&orders);
    senders.push(operator);
    witness.conclude(orders, ending, senders).await;
}

/// Purged messages settle, the message in flight goes on, and later messages are handled.
pub(super) async fn purge_meets_completion() {
    let witness = Witness::new();
    let orders = any(&witness);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11, 12]),
        witness.submit(&orders, 1, &[20, 21]),
        witness.submit(&orders, 2, &[30]),
    ];
    for _ in 0..3 {
        orders.lane(&1).purge();
        pause().await;
    }
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}
