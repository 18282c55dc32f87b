//! Whether a dispatcher can work, and why not.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use keylane::Dispatcher;
use keylane::watching::{HealthLimits, HealthReason};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{MS, SECOND, settle_until, within};

use crate::support::boxed;

#[tokio::test(start_paused = true)]
async fn a_dispatcher_that_is_full_and_settles_nothing_is_not_ready() {
    let gate = Gate::new();
    let behind = gate.clone();
    let orders = Dispatcher::builder(|n: &u64| *n)
        .name("orders")
        .capacity(2)
        .spawn(boxed(move |n| {
            let pass = behind.pass();
            async move {
                pass.await;
                Ok(n)
            }
        }))
        .unwrap();
    // It was idle for long, and is full at once.
    tokio::time::sleep(100 * SECOND).await;
    for n in 1..=2 {
        orders.send(n).await.unwrap();
    }
    gate.arrivals(2).await;
    assert!(orders.health().ready);
    tokio::time::sleep(25 * SECOND).await;
    assert!(orders.health().ready, "{}", orders.health());
    // One settles: it is slow, and goes on.
    gate.release(1);
    orders.send(3).await.unwrap();
    gate.arrivals(2).await;
    tokio::time::sleep(25 * SECOND).await;
    assert!(orders.health().ready, "{}", orders.health());
    // Without a question in between: the watchdog has looked.
    tokio::time::sleep(6 * SECOND).await;
    let health = orders.health();
    assert!(!health.ready && health.live, "{health}");
    let [
        HealthReason::Full {
            dispatcher, lasted, ..
        },
    ] = &health.reasons[..]
    else {
        panic!("{health}");
    };
    assert_eq!(dispatcher.as_deref(), Some("orders"));
    assert!((30 * SECOND..32 * SECOND).contains(lasted), "{health}");

    gate.open();
    let closed = orders.clone();
    within(async { orders.drain().await }).await;
    let health = closed.health();
    assert!(!health.ready && health.live, "{health}");
    assert!(matches!(health.reasons[..], [HealthReason::Closed { .. }]));
}

/// The watchdog finds it, and no question was asked before.
#[tokio::test(start_paused = true)]
async fn that_it_is_full_is_seen_between_the_questions() {
    let orders = Dispatcher::builder(|n: &u64| *n)
        .capacity(1)
        .spawn(boxed(|_| std::future::pending()))
        .unwrap();
    orders.send(1).await.unwrap();
    tokio::time::sleep(40 * SECOND).await;
    assert!(!orders.health().ready);
    orders.abort().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_whose_handler_blocks_for_long_is_not_live() {
    let (release, blocked) = channel::<()>();
    let blocked = Mutex::new(blocked);
    let orders = Dispatcher::builder(|n: &u64| *n)
        .stuck_after(4 * MS)
        .spawn(boxed(move |n| {
            blocked.lock().unwrap().recv().unwrap();
            async move { Ok(n) }
        }))
        .unwrap();
    let soon = HealthLimits::new().blocked(30 * MS);
    let receipt = orders.submit(1).await.unwrap();
    settle_until(|| !orders.health_within(&soon).live).await;
    let health = orders.health_within(&soon);
    assert!(
        matches!(
            health.reasons[..],
            [HealthReason::Blocked { handlers: 1, .. }]
        ),
        "{health}"
    );
    assert!(orders.health().live, "not for five minutes");
    release.send(()).unwrap();
    assert_eq!(within(receipt).await, Ok(1));
    settle_until(|| orders.health_within(&soon).ready).await;
    orders.drain().await;
}
