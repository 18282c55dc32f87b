//! The first message of a lane waits in the ready queue itself, and the lane behind it.

use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::discipline::{Coalesce, Sequence};
use keylane::routing::{HashLane, HashLanes, hash_lane};
use keylane::{Dispatcher, Overflow, Retry};
use keylane_testkit::scenario::{MS, SECOND, paused, quiet};
use keylane_testkit::{Act, Gate, History, Script};

use crate::support::{Job, jobs, scripted};

type Parts = Vec<(u64, u64)>;

/// How much of the capacity of ten is left when keys with three messages each are paused.
async fn left_of_ten(lane_capacity: usize, plan: u8) -> usize {
    let gate = Gate::new();
    let script = Script::new(&History::new()).key(99, Act::ok().waits(&gate));
    let builder = jobs()
        .concurrency(1)
        .capacity(10)
        .stalled_capacity(1_000)
        .lane_capacity(lane_capacity, Overflow::Wait);
    let merge = |_: &Job, new: &Job| new.clone();
    let builder = match plan {
        0 => builder,
        1 => builder.coalesce(Coalesce::merge(merge)),
        _ => builder.expire_after(1_000 * SECOND),
    };
    let jobs = builder.spawn(scripted(script)).unwrap();
    jobs.send(Job::new(99, 0)).await.unwrap();
    quiet().await;
    for key in 0..2 {
        // All are in the channel before the router sees the first.
        for id in 1..=3 {
            jobs.try_send(Job::new(key, id)).unwrap();
        }
        quiet().await;
        jobs.lane(&key).pause();
    }
    gate.open();
    quiet().await;
    let left = jobs.stats().capacity_left;
    for key in 0..2 {
        let _ = jobs.lane(&key).resume();
    }
    let _ = jobs.drain().await;
    left
}

/// What waits in a paused lane gives its room back, the first message too.
#[test]
fn the_first_message_of_a_paused_lane_above_its_limit_gives_its_room_back() {
    paused().block_on(async {
        for plan in 0..3 {
            for lane_capacity in [8, 1] {
                let left = left_of_ten(lane_capacity, plan).await;
                assert_eq!(left, 10, "plan {plan}, {lane_capacity} in a lane");
            }
        }
    });
}

/// A lane has not drained while the router merges what was in it.
#[test]
fn a_merge_does_not_drain_a_lane() {
    paused().block_on(async {
        let lane = |key, lanes| hash_lane(NonZeroUsize::new(lanes).unwrap(), &key);
        let stays = (1..).find(|key: &u64| lane(*key, 2) == 0).unwrap();
        let moves = (1..).find(|key: &u64| lane(*key, 2) == 1).unwrap();
        let order = Arc::new(Mutex::new(Parts::new()));
        let one = NonZeroUsize::new(1).unwrap();
        let jobs: HashLanes<Parts, (), Infallible> =
            Dispatcher::hash_lanes(one, |message: &Parts| message[message.len() - 1].0)
                .coalesce(Coalesce::merge(|waiting: &Parts, new: &Parts| {
                    [&waiting[..], &new[..]].concat()
                }))
                .spawn({
                    let order = Arc::clone(&order);
                    move |message: Parts| {
                        order.lock().unwrap().extend(message);
                        async { Ok(()) }
                    }
                })
                .unwrap();
        let old = jobs.lane(&HashLane::numbered(0));
        old.pause();
        jobs.send(vec![(moves, 1)]).await.unwrap();
        quiet().await;
        let resized = tokio::spawn({
            let jobs = jobs.clone();
            async move { jobs.resize(2).await }
        });
        quiet().await;
        jobs.send(vec![(moves, 2)]).await.unwrap();
        quiet().await;
        // It meets the first one, which must leave the old lane before the second starts.
        jobs.send(vec![(stays, 1)]).await.unwrap();
        quiet().await;
        assert!(!resized.is_finished(), "the old lane has not drained");
        assert_eq!(*order.lock().unwrap(), []);
        old.resume().unwrap();
        quiet().await;
        resized.await.unwrap().unwrap();
        let _ = jobs.drain().await;
        let order = order.lock().unwrap();
        assert_eq!(*order, [(moves, 1), (stays, 1), (moves, 2)]);
    });
}

/// A retry that waits for a runner expires at its time, whatever has let it out.
#[test]
fn a_retry_expires_in_the_ready_queue() {
    for by_operator in [false, true] {
        paused().block_on(async {
            let wait = if by_operator { 1_000 } else { 2 };
            let script = Script::new(&History::new())
                .key(1, Act::error())
                .otherwise(Act::ok().sleeps(100 * SECOND));
            let jobs = jobs()
                .concurrency(1)
                .retry(Retry::fixed(wait * SECOND))
                .expire_by(|job: &Job| (job.key == 1).then_some(10 * SECOND))
                .spawn(scripted(script))
                .unwrap();
            let began = tokio::time::Instant::now();
            let receipt = jobs.submit(Job::new(1, 1)).await.unwrap();
            quiet().await;
            jobs.send(Job::new(9, 1)).await.unwrap();
            tokio::time::sleep(3 * SECOND).await;
            if by_operator {
                jobs.lane(&1).retry_now().unwrap();
            }
            assert!(receipt.await.is_err());
            let late = began.elapsed().saturating_sub(10 * SECOND);
            assert!(late <= 2 * MS, "{late:?} late");
            let _ = jobs.abort().await;
        });
    }
}

/// Takes a key as its own hash.
#[derive(Clone, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

impl BuildHasher for Identity {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

/// Also where the hashes of all keys differ in their upper half only.
#[test]
fn a_key_is_remembered_while_no_more_than_half_as_many_others_come() {
    paused().block_on(async {
        let keys = 1 << 14;
        let sequence = Sequence::monotonic(|job: &Job| job.version);
        let jobs = jobs()
            .hasher(Identity::default())
            .sequence(sequence.remember(keys, Duration::from_secs(1_000)))
            .spawn(scripted(Script::new(&History::new())))
            .unwrap();
        for key in 0..keys as u64 / 4 {
            let receipt = jobs.submit(Job::new(key << 36, 1)).await.unwrap();
            receipt.await.unwrap();
        }
        let again = jobs.submit(Job::new(0, 1)).await.unwrap().await;
        assert!(again.is_err(), "its version was handled again");
    });
}
