//! Many leases, and much that happens to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keylane::Dispatcher;
use tokio::time::sleep;

use super::office::{AsU64, Call, Leases, MS};
use crate::support::boxed;

/// A key that knows how many of it there are.
#[derive(Debug)]
struct Counted(u64, Arc<AtomicUsize>);

impl Counted {
    fn new(key: u64, count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(key, Arc::clone(count))
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.0, &self.1)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl std::hash::Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // A few have the same.
        state.write_u64(self.0 / 3);
    }
}

impl AsU64 for Counted {
    fn as_u64(&self) -> u64 {
        self.0
    }
}

#[tokio::test(start_paused = true)]
async fn keys_by_the_hundred_thousand_leave_nothing_behind() {
    let leases = Leases::lingering(10 * MS);
    let count = Arc::new(AtomicUsize::new(0));
    let by_key = {
        let count = Arc::clone(&count);
        move |message: &u64| Counted::new(*message, &count)
    };
    let lanes = Dispatcher::builder(by_key)
        .leased_by(leases.clone())
        .spawn(|message: u64| async move {
            if message.is_multiple_of(7) {
                tokio::task::yield_now().await;
            }
            Ok::<_, ()>(message)
        })
        .unwrap();
    let mut most = 0;
    for message in 0..100_000 {
        lanes.send(message).await.unwrap();
        if message % 1_000 == 0 {
            sleep(MS).await;
            most = most.max(leases.held());
        }
    }
    assert!(most < 50_000, "{most} at a time");
    while lanes.stats().done < 100_000 {
        sleep(MS).await;
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!((leases.held(), leases.waiting()), (0, 0));
    // The context of each runner may still have the key of its last message.
    let left = count.load(Ordering::SeqCst);
    assert!(left <= 64, "{left} keys are left");
    assert_eq!(lanes.stats().lanes, 0);
    let report = lanes.drain().await;
    assert_eq!(report.done, 100_000);
}

/// Attempts of one key never overlap, whenever leases come and go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_come_and_go_under_load() {
    let leases = Leases::lingering(Duration::ZERO);
    let running: Arc<Vec<AtomicUsize>> = Arc::new((0..8).map(|_| AtomicUsize::new(0)).collect());
    let started = Arc::new(AtomicUsize::new(0));
    let lanes = {
        let (running, started) = (Arc::clone(&running), Arc::clone(&started));
        Dispatcher::builder(|message: &u64| message % 8)
            .leased_by(leases.clone())
            .spawn(boxed(move |context, message| {
                let (running, started) = (Arc::clone(&running), Arc::clone(&started));
                async move {
                    assert!(context.lease_token().is_some());
                    let here = &running[(message % 8) as usize];
                    assert_eq!(here.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    let _here = Call(here);
                    started.fetch_add(1, Ordering::SeqCst);
                    if message.is_multiple_of(3) {
                        sleep(MS / 4).await;
                    }
                    Ok(message)
                }
            }))
            .unwrap()
    };
    let thief = leases.steal_in_turn(8);
    for message in 0..4_000 {
        lanes.send(message).await.unwrap();
    }
    let report = lanes.drain().await;
    thief.abort();
    assert_eq!((report.done, report.discarded), (4_000, 0));
    let started = started.load(Ordering::SeqCst);
    assert!(started > 4_000, "no attempt was dropped");
    assert_eq!(leases.held(), 0);
}
