//! Lanes with a `Sequence`. The version of a message is the first digit of its number.

use std::time::Duration;

use keylane_rt as rt;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, Message, Orders};
use crate::discipline::{OnGap, Sequence};
use crate::watching::LaneState;
use crate::{Builder, Dispatcher, Overflow};

fn builder(
    then: OnGap,
) -> Builder<
    super::witness::Key,
    Message,
    &'static str,
    impl Fn(&Message) -> Option<u8> + Send + Sync + 'static,
> {
    let version = |message: &Message| u64::from(message.number / 10);
    Dispatcher::key_by_opt(|message: &Message| message.key).sequence(
        Sequence::contiguous(version)
            .from(1)
            .gap_timeout(Duration::from_millis(5), then),
    )
}

/// The versions handled on one key only grow.
fn judge_versions(witness: &Witness) {
    let versions: Vec<_> = witness.started(1).iter().map(|it| it / 10).collect();
    assert!(
        versions.windows(2).all(|pair| pair[0] < pair[1]),
        "{versions:?}"
    );
}

/// The missing version arrives, its time-out passes, or both. A late version is a duplicate.
pub(super) async fn gap_is_filled_and_skipped() {
    let witness = Witness::new();
    let orders = witness.spawn(builder(OnGap::Skip), |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[30, 40]),
        witness.submit(&orders, 1, &[10, 50]),
        witness.submit(&orders, 1, &[20]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    judge_versions(&witness);
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// A gap halts its key and is filled later. No version is skipped.
pub(super) async fn gap_is_filled_and_halts() {
    let witness = Witness::new();
    let orders = witness.spawn(builder(OnGap::Halt), |_, _| Act::Succeed);
    let senders = vec![
        witness.submit(&orders, 1, &[30, 40]),
        witness.submit(&orders, 1, &[10]),
        witness.submit(&orders, 1, &[20]),
    ];
    for _ in 0..3 {
        assert!(orders.stats().halted <= 1);
        let _ = orders.lane(&1).resume();
        pause().await;
    }
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    assert_eq!(witness.started(1), [10, 20, 30, 40]);
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// Early messages fill the lane. The messages with the missing versions still get in.
pub(super) async fn full_lane() {
    let witness = Witness::new();
    let builder = builder(OnGap::Halt).lane_capacity(2, Overflow::Wait);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    let early = [
        witness.send(&orders, 1, &[50]),
        witness.send(&orders, 1, &[40]),
    ];
    for sender in early {
        sender.await.expect("two have a place");
    }
    let senders = vec![
        witness.submit(&orders, 1, &[30]),
        witness.submit(&orders, 1, &[20]),
        witness.submit(&orders, 1, &[10]),
    ];
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.clone().conclude(orders, ending, Vec::new()).await;
    assert_eq!(witness.started(1), [10, 20, 30, 40, 50]);
}

/// An operator skips gaps until no version is missing, and then the shutdown comes.
async fn operate(orders: &Orders) {
    for _ in 0..4 {
        let lane = orders.lane(&1);
        let gap = |view: &crate::watching::LaneView| matches!(view.state, LaneState::Gap { .. });
        if lane.inspect().as_ref().is_some_and(gap) {
            // The missing version may come first.
            let _ = if rt::one_in(2) {
                lane.skip().is_ok()
            } else {
                lane.resume().is_ok()
            };
        }
        pause().await;
    }
}

/// The shutdown, an operator, the time-out and the missing version race.
pub(super) async fn meets_the_end() {
    let witness = Witness::new();
    let then = if rt::one_in(2) {
        OnGap::Skip
    } else {
        OnGap::Halt
    };
    let orders = witness.spawn(builder(then), |_, _| Act::Succeed);
    let mut senders = vec![
        witness.submit(&orders, 1, &[30, 60]),
        witness.send(&orders, 1, &[10, 40]),
        witness.submit(&orders, 1, &[20]),
    ];
    let operator = {
        let orders = orders.clone();
        super::witness::task(async move { operate(&orders).await })
    };
    senders.push(operator);
    pause().await;
    let ending = any_end(&orders);
    witness.clone().conclude(orders, ending, senders).await;
    judge_versions(&witness);
}
