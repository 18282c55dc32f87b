//! The queue against a naive model: a list that is searched, and a list of leases.

use std::collections::HashSet;
use std::time::Duration;

use keylane_queue::{LeaseError, Redelivery, TryDequeueError, TryEnqueueError};
use keylane_testkit::scenario::{MS, paused, within};
use proptest::prelude::*;

use crate::support::{Job, Jobs, builder};

const CAPACITY: usize = 12;
const LANE_CAPACITY: usize = 6;
const TIME: Duration = Duration::from_millis(20);

/// One thing that is done to the queue. Leases are named by their place among those still held.
#[derive(Clone, Debug)]
enum Step {
    Enqueue(u64),
    Dequeue,
    Complete(usize),
    Drop(usize),
    Fail(usize, Redelivery),
    Extend(usize, u64),
    Pass(u64),
    TakeParked,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let redelivery = prop_oneof![
        Just(Redelivery::Now),
        (1..30_u64).prop_map(|ms| Redelivery::After(Duration::from_millis(ms))),
        Just(Redelivery::Never),
    ];
    let step = prop_oneof![
        8 => (0..4_u64).prop_map(Step::Enqueue),
        8 => Just(Step::Dequeue),
        4 => any::<usize>().prop_map(Step::Complete),
        2 => any::<usize>().prop_map(Step::Drop),
        3 => (any::<usize>(), redelivery)
            .prop_map(|(which, redelivery)| Step::Fail(which, redelivery)),
        2 => (any::<usize>(), 1..50_u64).prop_map(|(which, ms)| Step::Extend(which, ms)),
        3 => (1..25_u64).prop_map(Step::Pass),
        1 => Just(Step::TakeParked),
    ];
    let steps = proptest::collection::vec(step, 0..120);
    (steps, proptest::option::of(0..120_usize)).prop_map(|(mut steps, close)| {
        if let Some(at) = close.filter(|at| *at <= steps.len()) {
            steps.insert(at, Step::Close);
        }
        steps
    })
}

/// The messages in the order in which they were accepted, and the leases. Each message knows since
/// when it is ready, for the order in which they are leased.
#[derive(Default)]
struct Naive {
    /// Not settled, leased ones included.
    jobs: Vec<Entry>,
    held: Vec<Held>,
    now: u64,
    clock: u64,
    tokens: u64,
    closed: bool,
    accepted: u64,
    completed: u64,
    given_up: u64,
    handed_back: u64,
}

struct Entry {
    job: Job,
    attempts: u32,
    /// Since when it is ready, if it is.
    ready: Option<u64>,
    /// Until when it is delayed, and the token of the lease that failed with it.
    due: Option<(u64, u64)>,
}

struct Held {
    job: Job,
    token: u64,
    until: u64,
    /// When that time was set, among all that happened.
    set: u64,
}

impl Naive {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn entry(&mut self, job: Job) -> &mut Entry {
        let mut jobs = self.jobs.iter_mut();
        jobs.find(|entry| entry.job == job).unwrap()
    }

    fn ready(&mut self, job: Job) {
        let stamp = self.tick();
        let entry = self.entry(job);
        entry.ready = Some(stamp);
        entry.due = None;
    }

    /// The first message of each key is ready, unless it is leased or delayed.
    fn settle_heads(&mut self) {
        let mut seen: HashSet<u64> = self.held.iter().map(|held| held.job.0).collect();
        let mut heads = Vec::new();
        for entry in &self.jobs {
            if seen.insert(entry.job.0) && entry.ready.is_none() && entry.due.is_none() {
                heads.push(entry.job);
            }
        }
        heads.into_iter().for_each(|job| self.ready(job));
    }

    /// How many messages of a key have not settled.
    fn lane(&self, key: u64) -> usize {
        self.jobs.iter().filter(|entry| entry.job.0 == key).count()
    }

    fn enqueue(&mut self, job: Job) {
        self.jobs.push(Entry {
            job,
            attempts: 0,
            ready: None,
            due: None,
        });
        self.accepted += 1;
        self.settle_heads();
    }

    fn dequeue(&mut self) -> Option<(Job, u32, u64)> {
        let now = self.now;
        let ready = self.jobs.iter_mut().filter(|entry| entry.ready.is_some());
        let entry = ready.min_by_key(|entry| entry.ready)?;
        entry.ready = None;
        entry.attempts += 1;
        let (job, attempts) = (entry.job, entry.attempts);
        self.tokens += 1;
        let (token, set) = (self.tokens, self.tick());
        self.held.push(Held {
            set,
            job,
            token,
            until: now + TIME.as_millis() as u64,
        });
        Some((job, attempts, token))
    }

    /// Ends the lease with this token, if it has not expired.
    fn take(&mut self, token: u64) -> Option<Job> {
        let at = self.held.iter().position(|held| held.token == token)?;
        Some(self.held.remove(at).job)
    }

    fn settle(&mut self, job: Job) {
        self.jobs.retain(|entry| entry.job != job);
        self.settle_heads();
    }

    /// A millisecond passes. Leases expire before delays end, each in the order of their times, and
    /// those of the same time in the order in which it was set.
    fn pass(&mut self) {
        self.now += 1;
        let now = self.now;
        let mut out: Vec<_> = self.held.extract_if(.., |held| held.until <= now).collect();
        out.sort_by_key(|held| (held.until, held.set));
        for held in out {
            self.ready(held.job);
        }
        let mut due: Vec<_> = self
            .jobs
            .iter()
            .filter_map(|entry| Some((entry.due?, entry.job)))
            .collect();
        due.retain(|((due, _), _)| *due <= now);
        due.sort_unstable();
        for (_, job) in due {
            self.ready(job);
        }
    }

    fn take_parked(&mut self) -> Vec<Job> {
        let leased: HashSet<Job> = self.held.iter().map(|held| held.job).collect();
        let back = self
            .jobs
            .extract_if(.., |entry| !leased.contains(&entry.job));
        let back: Vec<Job> = back.map(|entry| entry.job).collect();
        self.handed_back += back.len() as u64;
        back
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: keylane_testkit::scenario::cases(500),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_queue_is_its_naive_model(steps in steps()) {
        paused().block_on(run(steps));
    }
}

async fn run(steps: Vec<Step>) {
    let builder = builder().capacity(CAPACITY).lane_capacity(LANE_CAPACITY);
    let queue = builder.lease_time(TIME).spawn().unwrap();
    let mut naive = Naive::default();
    let mut leases = Vec::new();
    let mut number = 0;
    for step in steps {
        match step {
            Step::Enqueue(key) => {
                number += 1;
                let job = (key, number);
                let expected = if naive.closed {
                    Err(TryEnqueueError::Closed(job))
                } else if naive.jobs.len() == CAPACITY {
                    Err(TryEnqueueError::Full(job))
                } else if naive.lane(key) == LANE_CAPACITY {
                    Err(TryEnqueueError::LaneFull(job))
                } else {
                    naive.enqueue(job);
                    Ok(())
                };
                assert_eq!(queue.try_enqueue(job), expected);
            }
            Step::Dequeue => match (queue.try_dequeue(), naive.dequeue()) {
                (Ok(lease), Some((job, attempts, token))) => {
                    assert_eq!(
                        (*lease, lease.attempt(), lease.token()),
                        (job, attempts, token)
                    );
                    leases.push(lease);
                }
                (Err(error), None) => {
                    let over = naive.closed && naive.jobs.is_empty();
                    let expected = if over {
                        TryDequeueError::Closed
                    } else {
                        TryDequeueError::Empty
                    };
                    assert_eq!(error, expected);
                }
                (real, naive) => panic!("{real:?}, but {naive:?}"),
            },
            Step::Complete(which) if !leases.is_empty() => {
                let lease = leases.remove(which % leases.len());
                let expected = naive.take(lease.token());
                assert_eq!(
                    lease.complete(),
                    expected.map(drop).ok_or(LeaseError::Expired)
                );
                if let Some(job) = expected {
                    naive.completed += 1;
                    naive.settle(job);
                }
            }
            Step::Drop(which) if !leases.is_empty() => {
                let lease = leases.remove(which % leases.len());
                if let Some(job) = naive.take(lease.token()) {
                    naive.ready(job);
                }
            }
            Step::Fail(which, redelivery) if !leases.is_empty() => {
                let lease = leases.remove(which % leases.len());
                let token = lease.token();
                let expected = naive.take(token);
                assert_eq!(
                    lease.fail(redelivery),
                    expected.map(drop).ok_or(LeaseError::Expired)
                );
                match (expected, redelivery) {
                    (None, _) => {}
                    (Some(job), Redelivery::Now) => naive.ready(job),
                    (Some(job), Redelivery::Never) => {
                        naive.given_up += 1;
                        naive.settle(job);
                    }
                    (Some(job), Redelivery::After(time)) => {
                        let due = naive.now + time.as_millis() as u64;
                        naive.entry(job).due = Some((due, token));
                    }
                }
            }
            Step::Extend(which, ms) if !leases.is_empty() => {
                let lease = &leases[which % leases.len()];
                let (until, set) = (naive.now + ms, naive.tick());
                let mut held = naive.held.iter_mut();
                let held = held.find(|held| held.token == lease.token());
                let expected = held.map(|held| {
                    if held.until < until {
                        (held.until, held.set) = (until, set);
                    }
                });
                let extended = lease.extend(Duration::from_millis(ms));
                assert_eq!(extended, expected.ok_or(LeaseError::Expired));
            }
            Step::Pass(ms) => {
                for _ in 0..ms {
                    tokio::time::sleep(MS).await;
                    // The driver is woken in the same millisecond, perhaps after this task.
                    tokio::task::yield_now().await;
                    naive.pass();
                }
            }
            Step::TakeParked => {
                let back = queue.take_parked();
                let mut back: Vec<Job> = back.iter().map(|back| **back).collect();
                // Keys come in any order, and each key in its own.
                back.sort_by_key(|job| job.0);
                let mut expected = naive.take_parked();
                expected.sort_by_key(|job| job.0);
                assert_eq!(back, expected);
            }
            Step::Close => {
                queue.close();
                naive.closed = true;
            }
            Step::Complete(_) | Step::Drop(_) | Step::Fail(..) | Step::Extend(..) => {}
        }
        compare(&queue, &naive);
    }
    finish(queue, naive).await;
    drop(leases);
}

fn compare(queue: &Jobs, naive: &Naive) {
    assert_eq!(queue.len(), naive.jobs.len());
    assert_eq!(queue.leased(), naive.held.len());
    assert_eq!(queue.is_closed(), naive.closed);
    let report = queue.report();
    assert_eq!(
        (
            report.accepted,
            report.completed,
            report.given_up,
            report.handed_back
        ),
        (
            naive.accepted,
            naive.completed,
            naive.given_up,
            naive.handed_back
        )
    );
}

/// Everything that is left can be leased: the leases that are still held expire.
async fn finish(queue: Jobs, naive: Naive) {
    queue.close();
    let mut left = Vec::new();
    while let Some(lease) = within(queue.dequeue()).await {
        left.push(*lease);
        lease.complete().unwrap();
    }
    left.sort_unstable();
    let mut expected: Vec<Job> = naive.jobs.iter().map(|entry| entry.job).collect();
    expected.sort_unstable();
    assert_eq!(left, expected);
}
