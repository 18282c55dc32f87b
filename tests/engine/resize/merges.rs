//! Messages are merged while their lane loses its head, in the middle of changes.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use futures::FutureExt;
use keylane::Dispatcher;
use keylane::discipline::Coalesce;
use keylane::routing::{HashLanes, hash_lane};
use keylane_testkit::scenario::{settle_until, threads, within};
use tokio::sync::Semaphore;

use super::lanes;

/// Users whose messages have become one.
type Users = Vec<u64>;

/// The first user of these lanes, among so many, who is not one of the `others`.
fn user(homes: [(usize, usize); 3], others: &[u64]) -> u64 {
    let count = |of| NonZeroUsize::new(of).unwrap();
    let lives_there = |user: &u64| {
        let mut homes = homes.iter();
        homes.all(|(of, lane)| hash_lane(count(*of), user) == *lane)
    };
    (0..)
        .find(|user| !others.contains(user) && lives_there(user))
        .unwrap()
}

/// Two changes and a drain: the router merges two messages that were kept, and at that moment the
/// head of their lane settles. The lane stays, with the mark of the second change.
#[test]
fn a_drain_waits_for_what_is_merged() {
    threads().block_on(async {
        let blocker = user([(2, 0), (3, 0), (4, 0)], &[]);
        let other_blocker = user([(2, 1), (3, 1), (4, 1)], &[]);
        let head = user([(2, 0), (3, 2), (4, 2)], &[]);
        let waits = user([(2, 1), (3, 2), (4, 2)], &[]);
        let newcomer = user([(2, 1), (3, 2), (4, 2)], &[waits]);
        let moves = user([(2, 1), (3, 2), (4, 3)], &[]);

        let gate = |user| (user, Semaphore::new(0));
        let gates = [blocker, other_blocker, head].map(gate);
        let gates: Arc<HashMap<u64, Semaphore>> = Arc::new(gates.into_iter().collect());
        let started: Arc<Mutex<Vec<u64>>> = Arc::default();
        let is_merging: Arc<AtomicBool> = Arc::default();
        let handle: Arc<OnceLock<HashLanes<Users>>> = Arc::default();

        let merge = {
            let (is_merging, handle) = (Arc::clone(&is_merging), Arc::clone(&handle));
            move |waiting: &Users, new: &Users| {
                is_merging.store(true, Ordering::SeqCst);
                let lanes = handle.get().unwrap();
                // The two blockers and the head: its lane has moved on.
                while lanes.stats().done < 3 {
                    std::thread::yield_now();
                }
                [waiting.as_slice(), new].concat()
            }
        };
        let handler = {
            let (gates, started) = (Arc::clone(&gates), Arc::clone(&started));
            move |users: Users| {
                let (gates, started) = (Arc::clone(&gates), Arc::clone(&started));
                async move {
                    started.lock().unwrap().extend(&users);
                    if let Some(gate) = gates.get(&users[0]) {
                        gate.acquire().await.unwrap().forget();
                    }
                    Ok(())
                }
            }
        };
        let orders: HashLanes<Users> = Dispatcher::hash_lanes(lanes(2), |users: &Users| users[0])
            .coalesce(Coalesce::merge(merge))
            .spawn(handler)
            .unwrap();
        let has_started = |user| started.lock().unwrap().contains(&user);
        handle.set(orders.clone()).unwrap();

        for user in [blocker, other_blocker] {
            orders.send(vec![user]).await.unwrap();
            settle_until(|| has_started(user)).await;
        }
        let mut first = Box::pin(orders.resize(3));
        assert!((&mut first).now_or_never().is_none());
        settle_until(|| orders.lanes() == 3).await;
        for user in [head, waits, newcomer, moves] {
            orders.send(vec![user]).await.unwrap();
        }
        settle_until(|| orders.stats().accepted == 6).await;
        let mut second = Box::pin(orders.resize(4));
        assert!((&mut second).now_or_never().is_none());
        let mut drain = Box::pin(orders.drain().into_future());
        assert!((&mut drain).now_or_never().is_none());
        gates[&blocker].add_permits(1);
        settle_until(|| has_started(head)).await;
        gates[&other_blocker].add_permits(1);
        settle_until(|| is_merging.load(Ordering::SeqCst)).await;
        gates[&head].add_permits(1);

        let report = within(drain).await;
        assert_eq!((report.handed_back, report.done), (0, 5), "{report}");
        assert_eq!(report.coalesced, 1);
        assert!(has_started(moves) && within(first).await.is_ok());
        assert!(within(second).await.is_ok(), "the lanes have drained");
    });
}
