//! A dispatcher at rest has no watchdog; one that goes on after a rest is watched as before.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use keylane::Dispatcher;
use keylane::watching::{Event, HotBy};
use keylane_testkit::scenario::{MS, SECOND, within};

use crate::support::boxed;

/// A handler that blocks is found, however long nothing happened before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_after_a_rest_is_found() {
    let (release, blocked) = channel::<()>();
    let blocked = Mutex::new(blocked);
    let orders = Dispatcher::builder(|n: &u64| *n)
        .stuck_after(4 * MS)
        .spawn(boxed(move |n| {
            if n > 0 {
                blocked.lock().unwrap().recv().unwrap();
            }
            async move { Ok(n) }
        }))
        .unwrap();
    let mut events = orders.events();
    for n in 1..=3 {
        assert_eq!(orders.submit(0).await.unwrap().await, Ok(0));
        // Ticks are 1 ms apart: after a few without activity, the dispatcher is at rest.
        tokio::time::sleep(20 * MS).await;
        let receipt = orders.submit(n).await.unwrap();
        let Some(Event::Stuck { key, lasted, .. }) = within(events.recv()).await else {
            panic!("nothing else happens")
        };
        assert_eq!(key, Some(n));
        assert!(lasted >= 4 * MS);
        assert_eq!(orders.stats().stuck, n);
        release.send(()).unwrap();
        assert_eq!(receipt.await, Ok(n));
    }
    orders.drain().await;
}

/// Handlers that run alone, with a rest before each, and for less than a tick.
#[tokio::test(start_paused = true)]
async fn short_handlers_between_rests_are_as_busy_as_they_are() {
    let orders = Dispatcher::builder(|_: &u64| 1_u64)
        // Ticks each 250 ms.
        .stuck_after(SECOND)
        .spawn(boxed(|ms| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(ms)
        }))
        .unwrap();
    for _ in 0..100 {
        orders.submit(100).await.unwrap().await.unwrap();
        // 1,317 ms in all: they begin at all moments of a tick, and each time it rests meanwhile.
        tokio::time::sleep(1_217 * MS).await;
    }
    orders.send(600_000).await.unwrap();
    tokio::time::sleep(MS).await;
    let hottest = orders.hottest(1, HotBy::Busy).await;
    // 10 seconds, of which the first half counts a half or less, and the rests nothing.
    let busy = hottest[0].busy;
    assert!(busy > 4 * SECOND && busy < 9 * SECOND, "{busy:?}");
    orders.abort().await;
}

/// A rest is not the time of the handler that ends it.
#[tokio::test(start_paused = true)]
async fn a_long_rest_is_not_busy_time() {
    let orders = Dispatcher::builder(|n: &u64| *n)
        .stuck_after(SECOND)
        .spawn(boxed(|n| async move {
            tokio::time::sleep(3 * SECOND).await;
            Ok(n)
        }))
        .unwrap();
    for n in 1..=3 {
        tokio::time::sleep(10 * SECOND).await;
        orders.send(n).await.unwrap();
        tokio::time::sleep(2 * SECOND).await;
        let hottest = orders.hottest(1, HotBy::Busy).await;
        assert_eq!(hottest[0].key, n);
        assert!(hottest[0].busy >= SECOND, "{hottest:?}");
        assert!(hottest[0].busy <= 2 * SECOND + 260 * MS, "{hottest:?}");
    }
    orders.drain().await;
}
