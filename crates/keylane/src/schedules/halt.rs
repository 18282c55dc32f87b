//! Halted lanes, which wait for an operator's decision.

use keylane_rt as rt;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, After, Message, Orders, message};
use crate::watching::LaneState;
use crate::{Dispatcher, OnExhausted};

fn halting(witness: &Witness) -> Orders {
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .on_exhausted(OnExhausted::Halt)
        .stalled_capacity(2)
        .capacity(3);
    witness.spawn(builder, |message, _| {
        if message.number == 10 && rt::one_in(2) {
            Act::Fail
        } else {
            Act::Succeed
        }
    })
}

/// If key 1 is halted, decides about it in one of the three ways.
fn decide(witness: &Witness, orders: &Orders) {
    let lane = orders.lane(&1);
    let stats = orders.stats();
    assert!(stats.halted <= 1, "{stats:?}");
    let halted = |view: &crate::watching::LaneView| matches!(view.state, LaneState::Halted { .. });
    if !lane.inspect().as_ref().is_some_and(halted) {
        return;
    }
    witness.decide(1);
    // The shutdown may come first.
    let _ = if rt::one_in(3) {
        lane.resume().is_ok()
    } else if rt::one_in(2) {
        lane.skip().is_ok()
    } else {
        lane.replace(message(1, 10)).is_ok()
    };
}

/// The operator decides again and again, until no lane is halted.
pub(super) async fn and_decide() {
    let witness = Witness::with(1, After::Halt);
    let orders = halting(&witness);
    let mut senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 1, &[20]),
        witness.submit(&orders, 2, &[30]),
    ];
    while !senders.is_empty() || orders.inspect(&1).is_some() {
        decide(&witness, &orders);
        rt::yield_now().await;
        senders.retain(|sender| !sender.is_finished());
    }
    let ending = orders.drain();
    witness.conclude(orders, ending, senders).await;
}

/// The shutdown and the operator race.
pub(super) async fn meets_the_end() {
    let witness = Witness::with(1, After::Halt);
    let orders = halting(&witness);
    let mut senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 1, &[20, 21]),
    ];
    let operator = {
        let (witness, orders) = (witness.clone(), orders.clone());
        super::witness::task(async move {
            for _ in 0..4 {
                decide(&witness, &orders);
                pause().await;
            }
        })
    };
    senders.push(operator);
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}
