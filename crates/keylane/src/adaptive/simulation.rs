//! The controller against servers that are made of arithmetic: no clock, no task.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use super::window::Sample;
use super::{Adaptive, Controller};

/// Random enough, and the same each time for the same seed.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    /// From 0.0 to 1.0, without the end.
    fn part(&mut self) -> f64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How long one message is worked on, in milliseconds.
#[derive(Clone, Copy, Debug)]
enum Work {
    Same(f64),
    /// Without memory: as many far below the mean as there are far above.
    Exponential(f64),
    /// This part takes so much, and the rest so much.
    Two(f64, f64, f64),
}

impl Work {
    fn ms(self, dice: &mut Dice) -> f64 {
        match self {
            Self::Same(ms) => ms,
            Self::Exponential(mean) => -mean * (1.0 - dice.part()).ln(),
            Self::Two(part, one, _) if dice.part() < part => one,
            Self::Two(_, _, other) => other,
        }
    }
}

/// What happens to those above the capacity.
#[derive(Clone, Copy, Debug)]
enum Sharing {
    /// All get slower, in proportion: a processor.
    Equal,
    /// They wait for their turn: a semaphore, a connection pool.
    Queue,
}

/// When an attempt ends and when it started, in nanoseconds; how many there were then, whether it
/// times out, and the round.
type Attempt = (u64, u64, usize, bool, u32);

/// A handler with a capacity, and a dispatcher that holds the limit.
struct World {
    controller: Controller,
    range: RangeInclusive<usize>,
    limit: usize,
    capacity: usize,
    work: Work,
    sharing: Sharing,
    /// Attempts that are dropped at this, in milliseconds.
    timeout: f64,
    /// Most that there is to do at once.
    load: usize,
    dice: Dice,
    now: f64,
    running: BinaryHeap<Reverse<Attempt>>,
    /// When each unit of the capacity is free again.
    free: Vec<f64>,
    limits: Vec<usize>,
}

impl World {
    fn new(settings: Adaptive, capacity: usize, work: Work, sharing: Sharing) -> Self {
        settings.check().expect("the settings are right");
        let controller = Controller::new(settings);
        let limit = controller.limit();
        Self {
            controller,
            range: settings.min..=settings.max,
            limit,
            capacity,
            work,
            sharing,
            timeout: f64::MAX,
            load: usize::MAX,
            dice: Dice(7),
            now: 0.0,
            running: BinaryHeap::new(),
            free: Vec::new(),
            limits: vec![limit],
        }
    }

    fn start(&mut self) {
        let in_flight = self.running.len() + 1;
        let work = self.work.ms(&mut self.dice);
        let ends = match self.sharing {
            Sharing::Equal => self.now + work * (in_flight as f64 / self.capacity as f64).max(1.0),
            Sharing::Queue => {
                self.free.sort_by(f64::total_cmp);
                self.free.truncate(self.capacity);
                self.free.resize(self.capacity, 0.0);
                let slot = self.free.iter_mut().min_by(|a, b| a.total_cmp(b));
                let slot = slot.expect("there is some capacity");
                *slot = slot.max(self.now) + work;
                *slot
            }
        };
        let timed_out = ends - self.now > self.timeout;
        let ends = ends.min(self.now + self.timeout);
        let nanos = |ms: f64| (ms * 1e6) as u64;
        let attempt = (
            nanos(ends),
            nanos(self.now),
            in_flight,
            timed_out,
            self.controller.round(),
        );
        self.running.push(Reverse(attempt));
    }

    /// Goes on until so many windows have closed.
    fn windows(&mut self, count: usize) {
        let until = self.limits.len() + count;
        while self.limits.len() < until {
            while self.running.len() < self.limit.min(self.load) {
                self.start();
            }
            let Reverse((ended, started, in_flight, timed_out, round)) =
                self.running.pop().expect("a limit is at least one");
            self.now = ended as f64 / 1e6;
            let sample = Sample {
                latency: Duration::from_nanos(ended - started),
                in_flight,
                timed_out,
                round,
            };
            if let Some(limit) = self.controller.record(sample) {
                assert!(self.range.contains(&limit), "{limit}");
                self.limit = limit;
                self.limits.push(limit);
            }
        }
    }

    /// The median of the last limits: a probe is no verdict.
    fn settled(&self) -> usize {
        let mut last = self.limits[self.limits.len().saturating_sub(15)..].to_vec();
        last.sort_unstable();
        last[last.len() / 2]
    }
}

const BOTH: [Sharing; 2] = [Sharing::Equal, Sharing::Queue];

/// What the limit should be for a capacity, at rest: the tolerance above it, and half a root.
fn is_near(limit: usize, capacity: usize) -> bool {
    (capacity..=capacity * 5 / 4 + 2).contains(&limit)
}

#[test]
fn comes_to_the_capacity_from_below_and_from_above() {
    for sharing in BOTH {
        for capacity in [1, 2, 8, 16, 64, 150] {
            for initial in [1, 10, 200] {
                let settings = Adaptive::between(1, 256).initial(initial);
                let mut world = World::new(settings, capacity, Work::Same(10.0), sharing);
                world.windows(60);
                let limit = world.settled();
                assert!(
                    is_near(limit, capacity),
                    "{limit} for {capacity} from {initial}, {sharing:?}: {:?}",
                    world.limits
                );
            }
        }
    }
}

/// Down within 20 windows, whatever it falls from; up within 20 where it grows fourfold.
#[test]
fn follows_a_capacity_that_changes() {
    for sharing in BOTH {
        let mut world = World::new(Adaptive::between(1, 256), 8, Work::Same(10.0), sharing);
        world.windows(40);
        for capacity in [2, 8, 32, 8, 2, 6, 24, 80, 3, 12] {
            world.capacity = capacity;
            world.windows(20);
            world.windows(15);
            let limit = world.settled();
            let last = &world.limits[world.limits.len() - 35..];
            assert!(is_near(limit, capacity), "{capacity}: {limit}, {last:?}");
        }
    }
}

/// Latency that grows without a queue is no reason to stay small.
#[test]
fn takes_a_slower_handler_for_what_it_is() {
    for sharing in BOTH {
        let mut world = World::new(Adaptive::between(1, 256), 16, Work::Same(10.0), sharing);
        world.windows(40);
        for ms in [50.0, 5.0, 7.0, 1_000.0, 0.01] {
            world.work = Work::Same(ms);
            world.windows(60);
            let limit = world.settled();
            assert!(is_near(limit, 16), "{ms} ms: {limit}");
        }
    }
}

#[test]
fn does_not_grow_while_it_is_not_used() {
    for work in [Work::Same(10.0), Work::Exponential(10.0)] {
        let settings = Adaptive::between(4, 256).initial(40);
        let mut world = World::new(settings, 100, work, Sharing::Queue);
        world.load = 15;
        world.windows(200);
        assert_eq!(world.limits, [40; 201], "{work:?}");
        // The burst after it finds the limit where it was, and moves it.
        world.load = usize::MAX;
        world.windows(60);
        assert!(world.settled() >= 90, "{:?}", world.limits);
    }
}

/// One message in a hundred hangs until its time-out, which is 500 times what the others take.
#[test]
fn is_not_impressed_by_a_few_that_hang() {
    let work = Work::Two(0.01, 1e9, 10.0);
    let mut world = World::new(Adaptive::between(1, 256), 40, work, Sharing::Equal);
    world.timeout = 5_000.0;
    world.windows(100);
    let limit = world.settled();
    assert!((30..=80).contains(&limit), "{:?}", world.limits);
}

/// A time-out that is close to what an attempt takes cuts all latency off.
#[test]
fn shrinks_when_attempts_time_out() {
    let settings = Adaptive::between(2, 256).initial(60);
    let mut world = World::new(settings, 60, Work::Same(10.0), Sharing::Equal);
    world.timeout = 12.0;
    world.windows(30);
    assert!(world.settled() >= 55, "{:?}", world.limits);
    world.capacity = 4;
    world.windows(60);
    assert!(world.settled() <= 10, "{:?}", world.limits);
}

#[test]
fn a_latency_of_nothing_and_one_without_end_are_numbers() {
    let mut controller = Controller::new(Adaptive::between(3, u32::MAX as usize).samples(8));
    let latencies = [
        Duration::ZERO,
        Duration::MAX,
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::MAX,
    ];
    for latency in latencies {
        for timed_out in [false, true] {
            for in_flight in [0, 1, usize::MAX] {
                for _ in 0..200 {
                    let sample = Sample {
                        latency,
                        in_flight,
                        timed_out,
                        round: 1,
                    };
                    controller.record(sample);
                    assert!(controller.limit() >= 3);
                }
            }
        }
    }
}

#[test]
fn one_limit_is_a_range_too() {
    let mut world = World::new(
        Adaptive::between(5, 5).initial(100),
        2,
        Work::Same(10.0),
        Sharing::Equal,
    );
    world.windows(100);
    assert!(world.limits.iter().all(|limit| *limit == 5));
}

#[test]
fn settings_are_brought_into_their_range() {
    let wild = Adaptive::between(2, 9)
        .initial(0)
        .tolerance(f64::NAN)
        .smoothing(f64::NAN)
        .samples(0);
    let tame = Adaptive::between(2, 9)
        .initial(0)
        .tolerance(0.0)
        .smoothing(-1.0)
        .samples(1);
    assert_eq!(wild, tame);
    assert_eq!(wild.first(), 2);
    assert_eq!(Adaptive::between(2, 9).initial(70).first(), 9);
    let capped = Adaptive::between(1, 2)
        .tolerance(f64::INFINITY)
        .samples(u32::MAX);
    let most = Adaptive::between(1, 2).tolerance(10.0).samples(1 << 20);
    assert_eq!(capped, most);
}

fn works() -> impl Strategy<Value = Work> {
    let ms = 0.1..1_000.0_f64;
    prop_oneof![
        ms.clone().prop_map(Work::Exponential),
        // Up to ten times as slow for some part of the messages.
        (0.05..0.95_f64, ms, 1.0..10.0_f64).prop_map(|(part, one, times)| Work::Two(
            part,
            one,
            one * times
        )),
    ]
}

/// However attempts differ: on average the limit lets more than a third of the capacity work, and
/// does not run away.
///
/// The same cases each time, whatever the environment says: one in a thousand is luckless enough to
/// leave any bound worth having. `proptest!` would take the seed of the environment.
#[test]
fn neither_collapses_nor_runs_away_under_noise() {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 60,
        rng_seed: RngSeed::Fixed(2),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let cases = (
        works(),
        any::<bool>(),
        4..100_usize,
        1..200_usize,
        any::<u64>(),
    );
    let judged = runner.run(&cases, |(work, queue, capacity, initial, seed)| {
        let sharing = if queue {
            Sharing::Queue
        } else {
            Sharing::Equal
        };
        let settings = Adaptive::between(1, 1_000).initial(initial);
        let mut world = World::new(settings, capacity, work, sharing);
        world.dice = Dice(seed);
        world.windows(100);
        let from = world.limits.len();
        world.windows(150);
        let last = &world.limits[from..];
        let working: usize = last.iter().map(|limit| (*limit).min(capacity)).sum();
        let working = working as f64 / (last.len() * capacity) as f64;
        let mean = last.iter().sum::<usize>() as f64 / last.len() as f64;
        prop_assert!(working > 0.33, "{working:.2} of {capacity}: {last:?}");
        prop_assert!(
            mean < 3.0 * capacity as f64,
            "{mean:.0} for {capacity}: {last:?}"
        );
        Ok(())
    });
    if let Err(error) = judged {
        panic!("{error}");
    }
}
