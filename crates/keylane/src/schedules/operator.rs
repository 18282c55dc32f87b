//! Keys that an operator pauses, resumes and purges.

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, Message, Orders, task};
use crate::{Builder, Coalesce, Dispatcher, rt};

fn builder() -> Builder<
    super::witness::Key,
    Message,
    &'static str,
    impl Fn(&Message) -> Option<u8> + Send + Sync + 'static,
> {
    Dispatcher::key_by_opt(|message: &Message| message.key).quantum(1)
}

/// First in, first out, or coalesced.
fn any(witness: &Witness) -> Orders {
    if rt::one_in(2) {
        witness.spawn(builder(), |_, _| Act::Succeed)
    } else {
        let builder = builder().coalesce(Coalesce::keep_latest());
        witness.spawn(builder, |_, _| Act::Succeed)
    }
}

/// Pauses and resumes, and in the end resumes. Nothing starts in between but what is out already.
async fn pause_and_resume(orders: &Orders) {
    for _ in 0..2 {
        let lane = orders.lane(&1);
        lane.pause();
        pause().await;
        // The end may have come meanwhile.
        let _ = lane.resume();
        pause().await;
    }
}

/// A key that was paused and is resumed goes on, whatever finished meanwhile.
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
        sender.await.expect("nobody stops a sender");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// A paused key is handed back by the end, or resumed before it.
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

/// What is purged is settled, what is in flight goes on, and what comes later is handled.
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
        sender.await.expect("nobody stops a sender");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}
