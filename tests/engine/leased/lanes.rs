//! Lanes that are shared by many keys, and whose number changes, under leases.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::routing::{HashLane, HashLanes};
use keylane::{Context, Dispatcher};
use keylane_testkit::scenario::Random;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::office::{AsU64, LINGER, Leases, settle};
use crate::support::boxed_in_lanes;

/// A user, and the number of its message.
type Order = (u64, u64);

impl AsU64 for HashLane {
    fn as_u64(&self) -> u64 {
        self.index() as u64
    }
}

/// What was done: user, number, lane, token.
type Log = Arc<Mutex<Vec<(u64, u64, u64, u64)>>>;

struct Rig {
    lanes: HashLanes<Order>,
    leases: Leases,
    log: Log,
    /// Each handler takes a permit.
    gate: Arc<Semaphore>,
}

impl Rig {
    fn new(lanes: usize) -> Self {
        let (leases, log) = (Leases::new(), Log::default());
        let gate = Arc::new(Semaphore::new(0));
        let lanes = NonZeroUsize::new(lanes).unwrap();
        let handler = {
            let (log, gate) = (Arc::clone(&log), Arc::clone(&gate));
            move |context: Context<HashLane>, (user, number): Order| {
                let (log, gate) = (Arc::clone(&log), Arc::clone(&gate));
                async move {
                    let lane = context.key().unwrap().as_u64();
                    let token = context.lease_token().unwrap();
                    gate.acquire().await.unwrap().forget();
                    log.lock().unwrap().push((user, number, lane, token));
                    Ok(())
                }
            }
        };
        let lanes = Dispatcher::hash_lanes(lanes, |order: &Order| order.0)
            .leased_by(leases.clone())
            .spawn(boxed_in_lanes(handler))
            .unwrap();
        Self {
            lanes,
            leases,
            log,
            gate,
        }
    }

    fn open(&self) {
        self.gate.add_permits(1_000_000);
    }

    /// The number of the lane of a user, by what was done.
    fn lane_of(&self, user: u64) -> u64 {
        let log = self.log.lock().unwrap();
        log.iter().rfind(|done| done.0 == user).unwrap().2
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_has_one_lease_for_all_its_keys() {
    let rig = Rig::new(4);
    rig.open();
    for user in 0..100 {
        rig.lanes.send((user, 0)).await.unwrap();
    }
    settle().await;
    assert_eq!(rig.log.lock().unwrap().len(), 100);
    assert_eq!((rig.leases.held(), rig.leases.calls()), (4, 4));
    let lane = rig.lane_of(7);
    rig.leases.lose(lane);
    rig.lanes.send((7, 1)).await.unwrap();
    settle().await;
    assert_eq!(rig.log.lock().unwrap().len(), 100, "another has its lane");
    rig.leases.leave(lane);
    settle().await;
    assert_eq!(rig.log.lock().unwrap().last().unwrap(), &(7, 1, lane, 5));
}

/// What moves waits for its old lane, and that for its lease.
#[tokio::test(start_paused = true)]
async fn a_change_waits_for_the_leases_of_old_lanes() {
    let rig = Rig::new(1);
    rig.leases.take(0);
    for user in 0..20 {
        rig.lanes.send((user, 0)).await.unwrap();
    }
    settle().await;
    let mut change = Box::pin(rig.lanes.resize(8));
    assert!(timeout(LINGER * 10, &mut change).await.is_err());
    rig.open();
    for user in 0..20 {
        rig.lanes.send((user, 1)).await.unwrap();
    }
    settle().await;
    assert_eq!(rig.log.lock().unwrap().len(), 0);
    rig.leases.leave(0);
    change.await.unwrap();
    let report = rig.lanes.drain().await;
    assert_eq!(report.done, 40);
    let log = rig.log.lock().unwrap();
    for user in 0..20 {
        let numbers = log.iter().filter(|done| done.0 == user).map(|done| done.1);
        assert_eq!(Vec::from_iter(numbers), [0, 1], "{user}");
    }
    let lanes: BTreeSet<u64> = log.iter().map(|done| done.2).collect();
    assert!(lanes.len() > 4, "{lanes:?}");
    assert_eq!(rig.leases.held(), 0);
}

/// Lanes that are no more give their leases up as idle ones do.
#[tokio::test(start_paused = true)]
async fn lanes_that_are_no_more_have_no_leases() {
    let rig = Rig::new(64);
    rig.open();
    for user in 0..1_000 {
        rig.lanes.send((user, 0)).await.unwrap();
    }
    settle().await;
    assert_eq!(rig.leases.held(), 64);
    rig.lanes.resize(2).await.unwrap();
    for round in 1..20 {
        for user in 0..10 {
            rig.lanes.send((user, round)).await.unwrap();
        }
        sleep(LINGER / 4).await;
    }
    assert_eq!(rig.leases.held(), 2);
}

#[test]
fn changes_while_leases_come_and_go_break_no_order() {
    const USERS: u64 = 50;
    const ORDERS: u64 = 100;
    keylane_testkit::scenario::threads().block_on(async {
        let rig = Rig::new(4);
        rig.open();
        let thief = rig.leases.steal_in_turn(16);
        let load = {
            let lanes = rig.lanes.clone();
            tokio::spawn(async move {
                for number in 0..ORDERS {
                    for user in 0..USERS {
                        lanes.send((user, number)).await.unwrap();
                    }
                }
            })
        };
        let mut dice = Random::new(5);
        for _ in 0..60 {
            let change = rig.lanes.resize(1 + dice.below(16) as usize);
            timeout(Duration::from_secs(120), change)
                .await
                .expect("it ends")
                .unwrap();
        }
        load.await.unwrap();
        let report = rig.lanes.drain().await;
        thief.abort();
        assert_eq!(report.done, USERS * ORDERS);
        let (mut last, mut tokens) = (BTreeMap::new(), BTreeMap::new());
        for (user, number, lane, token) in rig.log.lock().unwrap().iter().copied() {
            let next = last.insert(user, number).map_or(0, |last| last + 1);
            assert_eq!(number, next, "of {user}");
            let before = tokens.insert(lane, token).unwrap_or(0);
            assert!(before <= token, "{before}, then {token} in lane {lane}");
        }
        assert_eq!(rig.leases.held(), 0);
    });
}
