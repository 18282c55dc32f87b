//! Dead letters, and the keys that wait until the sink has them.

use std::time::Duration;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, After, Message, Orders, Sink};
use crate::{Dispatcher, OnExhausted, Retry};

fn lettering(witness: &Witness, attempts: u32, refusals: u32) -> Orders {
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .retry(Retry::fixed(Duration::from_millis(5)).max_attempts(attempts))
        .on_exhausted(OnExhausted::dead_letter(Sink::new(witness, refusals)));
    witness.spawn(builder, |message, _| {
        if message.number.is_multiple_of(10) {
            Act::Fail
        } else {
            Act::Succeed
        }
    })
}

/// The next message of a key starts after the sink has accepted the letter of the previous one.
pub(super) async fn before_the_next() {
    let witness = Witness::with(2, After::Letter);
    let orders = lettering(&witness, 2, 0);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.submit(&orders, 1, &[20]),
        witness.submit(&orders, 2, &[30, 31]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// A sink that refuses a letter is asked again. The key waits.
pub(super) async fn refused_at_first() {
    let witness = Witness::with(1, After::Letter);
    let orders = lettering(&witness, 1, 2);
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

/// The shutdown comes while letters are on their way to the sink.
pub(super) async fn meet_the_end() {
    let witness = Witness::with(1, After::Letter);
    let orders = lettering(&witness, 1, 1);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 2, &[20, 21]),
    ];
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}
