//! The concurrency limit changes while jobs wait.

use keylane_rt::{self as rt, Arc, Semaphore};

use super::Witness;
use super::explore::pause;
use super::witness::{Act, Hasher, Message, Orders};
use crate::adaptive::Decided;
use crate::{Adaptive, Dispatcher};

/// Two handlers wait for each other, and the limit is one until the test raises it. The raised
/// limit must start a runner for the waiting job, or neither handler ends.
pub(super) async fn grows_for_who_waits() {
    let met = Arc::new([Semaphore::new(0), Semaphore::new(0)]);
    let orders = Dispatcher::builder(|place: &usize| *place)
        .concurrency(1)
        .hasher(Hasher::default())
        .shards(2)
        .spawn(move |place: usize| {
            let met = Arc::clone(&met);
            async move {
                met[place].add_permits(1);
                let other = met[1 - place].acquire().await;
                other.map(|_| ()).map_err(|_| "it stays open")
            }
        })
        .expect("the settings are right");
    let mut receipts = Vec::new();
    for place in [0, 1] {
        receipts.push(orders.submit(place).await.expect("it stays open"));
    }
    pause().await;
    let raised = Decided {
        limit: 2,
        number: 1,
    };
    orders.engine.set_concurrency(raised);
    for receipt in receipts {
        assert_eq!(receipt.await, Ok(()));
    }
    let report = orders.drain().await;
    assert_eq!(report.done, 2, "{report}");
    let engine = Arc::downgrade(&orders.engine);
    drop(orders);
    while engine.strong_count() > 0 {
        rt::yield_now().await;
    }
}

/// The limit goes down and up while two runners work and four lanes are ready.
pub(super) async fn shrinks_and_grows() {
    let witness = Witness::new();
    let builder = Dispatcher::builder(|message: &Message| message.key.unwrap_or(0))
        .concurrency(3)
        .quantum(1);
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    witness.limit(3, 0);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.submit(&orders, 2, &[20, 21]),
        witness.submit(&orders, 3, &[30, 31]),
        witness.submit(&orders, 4, &[40]),
    ];
    for (limit, number) in [(1, 1), (2, 2), (1, 3), (3, 4)] {
        pause().await;
        hold(&witness, &orders, Decided { limit, number });
    }
    // This decision is older than the last one, so it is ignored.
    let late = Decided {
        limit: 1,
        number: 3,
    };
    orders.engine.set_concurrency(late);
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    assert_eq!(orders.stats().concurrency_limit, 3);
    let ending = orders.drain();
    witness.conclude(orders, ending, Vec::new()).await;
}

/// Changes the limit, and tells the witness at a moment at which the new limit holds.
fn hold(witness: &Witness, orders: &Orders, decided: Decided) {
    let stats = orders.stats();
    if decided.limit > stats.concurrency_limit {
        witness.limit(decided.limit, stats.in_flight);
        orders.engine.set_concurrency(decided);
    } else {
        orders.engine.set_concurrency(decided);
        witness.limit(decided.limit, orders.stats().in_flight);
    }
}

/// The measured latency changes the limit. Two runners may each close a window at the same time.
pub(super) async fn is_measured() {
    let witness = Witness::new();
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .adaptive_concurrency(Adaptive::between(1, 3).samples(8).smoothing(1.0));
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    witness.limit(3, 0);
    let senders: Vec<_> = (1..=4)
        .map(|key| {
            let first = 10 * u32::from(key);
            witness.send(&orders, key, &[first, first + 1, first + 2, first + 3])
        })
        .collect();
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    let report = ending.await;
    assert_eq!(report.done, 16, "{report}");
    // Two windows have closed, and in one of them the limit was in use.
    let limit = orders.stats().concurrency_limit;
    assert!((2..=3).contains(&limit), "{limit}");
    witness.judge(&orders, &report);
    witness.vanish(orders).await;
}
