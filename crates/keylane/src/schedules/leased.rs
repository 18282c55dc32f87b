//! Leases that are granted, refused and lost while lanes go on, and end.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use keylane_rt as rt;
use keylane_rt::atomic::{AtomicBool, AtomicU64};
use keylane_rt::clock;
use keylane_source::lease::{LaneLease, LaneLeaseError, LaneLeases};
use tokio::time::Instant;

use super::Witness;
use super::ending::any_end;
use super::explore::pause;
use super::witness::{Act, Key, Message, Orders, task};
use crate::Dispatcher;

/// Grants a lease after a while, or fails; and takes it away at any moment. Never are there two of
/// a key.
#[derive(Clone, Default)]
struct Fickle {
    flags: Arc<Mutex<BTreeMap<Key, Arc<Flag>>>>,
    losses: Arc<AtomicU64>,
}

#[derive(Default)]
struct Flag {
    is_lost: AtomicBool,
    is_dropped: AtomicBool,
    waker: AtomicWaker,
}

struct Held(Arc<Flag>);

#[crate::async_trait]
impl LaneLeases<Key> for Fickle {
    async fn acquire(&self, key: &Key) -> Result<Box<dyn LaneLease>, LaneLeaseError> {
        pause().await;
        if rt::one_in(4) {
            return Err(LaneLeaseError::Failed("not this time".into()));
        }
        let flag = Arc::new(Flag::default());
        let before = self.lock().insert(*key, Arc::clone(&flag));
        let is_over = before.is_none_or(|before| before.is_dropped.load(Ordering::SeqCst));
        assert!(is_over, "the lease of {key} is asked for while it is here");
        Ok(Box::new(Held(flag)))
    }

    fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    fn linger(&self) -> Duration {
        Duration::ZERO
    }
}

impl LaneLease for Held {
    fn token(&self) -> u64 {
        1
    }

    fn held_until(&self) -> Option<Instant> {
        let is_lost = self.0.is_lost.load(Ordering::SeqCst);
        (!is_lost).then(|| Instant::from(clock::now()) + Duration::from_secs(3_600))
    }

    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.waker.register(cx.waker());
        match self.0.is_lost.load(Ordering::SeqCst) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.is_dropped.store(true, Ordering::SeqCst);
    }
}

impl Fickle {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Arc<Flag>>> {
        self.flags.lock().expect("it does not panic")
    }

    /// Takes leases away now and then.
    async fn steal(self) {
        for _ in 0..3 {
            pause().await;
            let flags = Vec::from_iter(self.lock().values().cloned());
            for flag in flags {
                if rt::one_in(2) {
                    flag.is_lost.store(true, Ordering::SeqCst);
                    self.losses.fetch_add(1, Ordering::SeqCst);
                    flag.waker.wake();
                }
            }
        }
    }
}

fn leased(witness: &Witness) -> (Orders, Fickle) {
    let leases = Fickle::default();
    let builder = Dispatcher::key_by_opt(|message: &Message| message.key)
        .concurrency(2)
        .quantum(2)
        .leased_by(leases.clone());
    let orders = witness.spawn(builder, |_, _| Act::Succeed);
    (orders, leases)
}

/// A grant wakes its lane, and an attempt whose lease is lost is dropped and comes again, or is
/// done.
pub(super) async fn lost_and_granted() {
    let witness = Witness::new();
    let (orders, leases) = leased(&witness);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 1, &[20]),
        witness.submit(&orders, 2, &[30]),
    ];
    leases.steal().await;
    for sender in senders {
        sender.await.expect("no sender is stopped");
    }
    let ending = orders.drain();
    witness.clone().conclude(orders, ending, Vec::new()).await;
    assert_eq!(witness.done(), 4, "a drain waits for leases");
}

/// The shutdown comes while leases come and go.
pub(super) async fn meets_the_end() {
    let witness = Witness::new();
    let (orders, leases) = leased(&witness);
    let senders = vec![
        witness.submit(&orders, 1, &[10, 11]),
        witness.send(&orders, 2, &[20, 21]),
        task(leases.steal()),
    ];
    pause().await;
    let ending = any_end(&orders);
    witness.conclude(orders, ending, senders).await;
}
