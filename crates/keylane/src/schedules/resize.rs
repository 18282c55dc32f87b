//! The number of lanes changes while users send.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle_tokio::task::JoinHandle;

use super::explore::pause;
use super::witness::{Hasher, task};
use crate::discipline::Coalesce;
use crate::routing::{HashLane, HashLanes, hash_lane};
use crate::{Context, Dispatcher, Overflow, Retry, Shutdown};

/// Messages that have become one, in the order in which they came.
type Merged = Vec<(u8, u32)>;

type Lanes = HashLanes<(u8, u32), (), &'static str>;

/// What happened to the messages of each user. Its lock is not a lock of the model.
#[derive(Clone, Default)]
struct Users(Arc<Mutex<BTreeMap<u8, User>>>);

#[derive(Default)]
struct User {
    running: bool,
    /// The message of the last attempt, and whether it is done.
    last: (u32, bool),
    wrong: Vec<String>,
    accepted: u64,
    done: u64,
}

impl Users {
    fn with<R>(&self, user: u8, see: impl FnOnce(&mut User) -> R) -> R {
        let mut users = self.0.lock().expect("no task panics while it looks");
        see(users.entry(user).or_default())
    }

    /// Every other message fails at its first attempt.
    async fn handle(self, attempt: u32, (user, number): (u8, u32)) -> Result<(), &'static str> {
        let running = Running::start(&self, user, number, attempt);
        pause().await;
        if number % 2 == 1 && attempt == 1 {
            return Err("as told");
        }
        self.with(user, |seen| {
            seen.last.1 = true;
            seen.done += 1;
        });
        drop(running);
        Ok(())
    }

    /// A lane small enough to fill up.
    fn spawn(&self) -> Lanes {
        let users = self.clone();
        Dispatcher::hash_lanes(NonZeroUsize::MIN, |message: &(u8, u32)| message.0)
            .concurrency(2)
            .quantum(1)
            .lane_capacity(2, Overflow::Wait)
            .retry(Retry::fixed(Duration::from_millis(1)))
            .hasher(Hasher::default())
            .shards(2)
            .spawn(move |context: Context<HashLane>, message: (u8, u32)| {
                users.clone().handle(context.attempt(), message)
            })
            .expect("the settings are right")
    }

    /// Sends messages of one user, in order, until one is refused.
    fn send(&self, lanes: &Lanes, user: u8, numbers: std::ops::Range<u32>) -> JoinHandle<()> {
        let (users, lanes) = (self.clone(), lanes.clone());
        task(async move {
            for number in numbers {
                if lanes.send((user, number)).await.is_err() {
                    break;
                }
                users.with(user, |seen| seen.accepted += 1);
            }
        })
    }

    async fn conclude(
        self,
        lanes: Lanes,
        ending: Shutdown<HashLane, (u8, u32), (), &'static str>,
        tasks: Vec<JoinHandle<()>>,
    ) -> u64 {
        let report = ending.await;
        for task in tasks {
            task.await.expect("it is not stopped");
        }
        let stats = lanes.stats();
        let settled = report.done + report.handed_back;
        assert_eq!(settled, report.accepted, "{report}: {stats:?}");
        assert_eq!(
            (stats.lanes, stats.stalled, stats.full_lanes),
            (0, 0, 0),
            "{stats:?}"
        );
        let (mut accepted, mut done) = (0, 0);
        for (user, seen) in &*self.0.lock().expect("no task panics while it looks") {
            assert!(seen.wrong.is_empty(), "of user {user}: {:#?}", seen.wrong);
            accepted += seen.accepted;
            done += seen.done;
        }
        assert_eq!((accepted, done), (report.accepted, report.done));
        let mut latest = BTreeMap::new();
        for back in &report.returned {
            if let Some((user, number)) = back.message {
                let before = latest.insert(user, number);
                assert!(before < Some(number), "{number} came back after {before:?}");
            }
        }
        leave(lanes).await;
        report.handed_back
    }
}

/// Waits until the tasks of a dispatcher that has shut down are gone.
async fn leave<M: Send + 'static>(lanes: HashLanes<M, (), &'static str>) {
    let engine = Arc::downgrade(&lanes.engine);
    drop(lanes);
    while engine.strong_count() > 0 {
        keylane_rt::yield_now().await;
    }
}

/// A running attempt. Dropping it ends the attempt.
struct Running<'a> {
    users: &'a Users,
    user: u8,
}

impl<'a> Running<'a> {
    fn start(users: &'a Users, user: u8, number: u32, attempt: u32) -> Self {
        users.with(user, |seen| {
            let (last, done) = seen.last;
            let is_next = number == last + 1 && done && attempt == 1;
            let is_again = number == last && !done && attempt == 2;
            let what = format!("attempt {attempt} of {number} after {last}, done: {done}");
            if seen.running {
                seen.wrong.push(format!("{what}, beside another one"));
            }
            if !is_next && !is_again && (last, number) != (0, 1) {
                seen.wrong.push(what);
            }
            seen.running = true;
            seen.last = (number, false);
        });
        Self { users, user }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.users.with(self.user, |seen| seen.running = false);
    }
}

/// The number of lanes grows and shrinks. Each task waits for the change that it requested.
pub(super) async fn twice_under_load() {
    let users = Users::default();
    let lanes = users.spawn();
    let mut tasks = vec![users.send(&lanes, 0, 1..4), users.send(&lanes, 1, 1..4)];
    let change = {
        let lanes = lanes.clone();
        task(async move {
            lanes.resize(4).await.expect("it stays open");
            lanes.resize(2).await.expect("it stays open");
        })
    };
    tasks.push(users.send(&lanes, 2, 1..3));
    tasks.push(change);
    for task in tasks {
        task.await.expect("it is not stopped");
    }
    let ending = lanes.drain();
    let handed_back = users.conclude(lanes, ending, Vec::new()).await;
    assert_eq!(handed_back, 0);
}

/// Two resizes run while the dispatcher shuts down in any of the three ways.
pub(super) async fn meets_the_end() {
    let users = Users::default();
    let lanes = users.spawn();
    let mut tasks = vec![users.send(&lanes, 0, 1..4), users.send(&lanes, 1, 1..4)];
    for count in [4, 2] {
        let lanes = lanes.clone();
        tasks.push(task(async move {
            // The shutdown may come first.
            let _ = lanes.resize(count).await;
        }));
    }
    pause().await;
    let drains = keylane_rt::one_in(2);
    let ending = match drains {
        true => lanes.drain(),
        false => lanes.close(),
    };
    let handed_back = users.conclude(lanes, ending, tasks).await;
    assert!(!drains || handed_back == 0, "{handed_back} came back");
}

/// What waits in a lane is merged while one of its users moves to another lane. Nothing of a
/// message is lost in it, so each user's messages start in order, one after the other.
pub(super) async fn merges_meanwhile() {
    let users = Users::default();
    let lanes = {
        let users = users.clone();
        let merge = |waiting: &Merged, new: &Merged| [waiting.as_slice(), new].concat();
        Dispatcher::hash_lanes(NonZeroUsize::MIN, |message: &Merged| message[0].0)
            .coalesce(Coalesce::merge(merge))
            .concurrency(2)
            .quantum(1)
            .hasher(Hasher::default())
            .shards(2)
            .spawn(move |message: Merged| {
                let users = users.clone();
                async move {
                    for (user, number) in message {
                        let running = Running::start(&users, user, number, 1);
                        pause().await;
                        users.with(user, |seen| seen.last.1 = true);
                        drop(running);
                    }
                    Ok::<(), &str>(())
                }
            })
            .expect("the settings are right")
    };
    let two = NonZeroUsize::new(2).expect("it is not zero");
    let user_of = |lane| {
        (0_u8..)
            .find(|user| hash_lane(two, user) == lane)
            .unwrap_or(0)
    };
    let (stays, moves) = (user_of(0), user_of(1));
    let send = |user: u8, numbers: std::ops::Range<u32>| {
        let lanes = lanes.clone();
        task(async move {
            for number in numbers {
                let sent = lanes.send(vec![(user, number)]).await;
                sent.expect("it stays open");
            }
        })
    };
    for user in [stays, moves] {
        send(user, 1..2).await.expect("it is not stopped");
    }
    let change = {
        let lanes = lanes.clone();
        task(async move { lanes.resize(2).await.expect("it stays open") })
    };
    let tasks = vec![change, send(stays, 2..5), send(moves, 2..4)];
    for task in tasks {
        task.await.expect("it is not stopped");
    }
    let report = lanes.drain().await;
    assert_eq!(
        (report.accepted, report.done + report.coalesced),
        (7, 7),
        "{report}"
    );
    leave(lanes).await;
    for (user, last) in [(stays, 4), (moves, 3)] {
        users.with(user, |seen| {
            assert!(seen.wrong.is_empty(), "of user {user}: {:#?}", seen.wrong);
            assert_eq!(seen.last, (last, true), "of user {user}");
        });
    }
}
