//! The adaptive concurrency: it follows the handler, and breaks no promise on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keylane::error::BuildError;
use keylane::{Adaptive, Dispatcher};
use keylane_testkit::scenario::{MS, Producer, SECOND, dispatcher, paused, scripted, within};
use keylane_testkit::{Act, Evidence, Gate, History, Script};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::support::boxed;

/// A place where so many are served at once, 10 ms each; the rest wait in line. So many may change.
#[derive(Clone)]
struct Counter {
    seats: Arc<Semaphore>,
    open: Arc<AtomicUsize>,
    busiest: Arc<AtomicUsize>,
    inside: Arc<AtomicUsize>,
}

impl Counter {
    fn new(seats: usize) -> Self {
        Self {
            seats: Arc::new(Semaphore::new(seats)),
            open: Arc::new(AtomicUsize::new(seats)),
            busiest: Arc::default(),
            inside: Arc::default(),
        }
    }

    async fn serve(&self) {
        let inside = self.inside.fetch_add(1, Ordering::Relaxed) + 1;
        self.busiest.fetch_max(inside, Ordering::Relaxed);
        let seat = self.seats.acquire().await.expect("it stays open");
        tokio::time::sleep(10 * MS).await;
        drop(seat);
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }

    /// Those that are being served are not disturbed.
    fn set(&self, seats: usize) {
        let open = self.open.swap(seats, Ordering::Relaxed);
        if seats > open {
            self.seats.add_permits(seats - open);
        } else {
            let (places, fewer) = (Arc::clone(&self.seats), (open - seats) as u32);
            tokio::spawn(async move {
                let permits = places.acquire_many(fewer).await;
                permits.expect("it stays open").forget();
            });
        }
    }
}

/// The median of what the limit was over a second: a probe halves it for a moment.
async fn limit_over_a_second(orders: &Dispatcher<u64, u64, u64, ()>) -> usize {
    let mut limits = Vec::new();
    for _ in 0..100 {
        tokio::time::sleep(10 * MS).await;
        limits.push(orders.stats().concurrency_limit);
    }
    limits.sort_unstable();
    limits[50]
}

#[test]
fn the_limit_follows_a_capacity_that_changes() {
    paused().block_on(async {
        let counter = Counter::new(8);
        let served = counter.clone();
        let orders = Dispatcher::builder(|n: &u64| n % 1_000)
            .adaptive_concurrency(Adaptive::between(1, 64))
            .spawn(boxed(move |_, n| {
                let served = served.clone();
                async move {
                    served.serve().await;
                    Ok(n)
                }
            }))
            .unwrap();
        assert_eq!(orders.stats().concurrency_limit, 1);
        let sender = tokio::spawn({
            let orders = orders.clone();
            async move {
                for n in 0.. {
                    if orders.send(n).await.is_err() {
                        break;
                    }
                }
            }
        });
        for (seats, seconds) in [(8, 5), (2, 8), (16, 8), (4, 5)] {
            counter.set(seats);
            tokio::time::sleep(seconds * SECOND).await;
            let limit = limit_over_a_second(&orders).await;
            let near = seats..=seats * 5 / 4 + 2;
            assert!(near.contains(&limit), "{limit} for {seats} seats");
        }
        let report = within(async { orders.abort().await }).await;
        assert!(report.done > 10_000, "{report}");
        sender.await.unwrap();
        assert_eq!(orders.stats().in_flight, 0);
    });
}

#[test]
fn order_and_drain_hold_while_it_moves() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::ok().sleeps(10 * MS));
        let orders = dispatcher()
            .adaptive_concurrency(Adaptive::between(2, 40).initial(20).samples(8))
            .quantum(2)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for n in 0..3_000 {
            producer.send((n % 7 != 0).then_some(n % 60)).await;
            if n % 100 == 0 {
                tokio::time::sleep(5 * MS).await;
            }
        }
        let moved = producer.dispatcher.stats().concurrency_limit;
        assert_ne!(moved, 20);
        let report = producer.finish(Evidence::new().concurrency(40)).await;
        assert_eq!(report.done, 3_000);
    });
}

/// Twelve handlers stand at a gate, others get slower, and the limit falls below the twelve.
#[test]
fn a_limit_below_what_is_in_flight_drops_nothing() {
    const HELD: u64 = 12;
    const OTHER: u64 = 99;
    const QUICK: u64 = 100;
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let mut script = Script::new(&history).otherwise(Act::ok().waits(&gate));
        for n in 1..=QUICK + 500 {
            let ms = if n <= QUICK { 1 } else { 200 };
            script = script.message(HELD + n, Act::ok().sleeps(ms * MS));
        }
        let orders = dispatcher()
            .adaptive_concurrency(Adaptive::between(1, 20).initial(20).samples(8))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for key in 0..HELD {
            producer.send(key).await;
        }
        producer.send_all(OTHER, QUICK as usize + 500).await;
        let began = Instant::now();
        tokio::time::sleep(1_000 * SECOND).await;

        let stats = producer.dispatcher.stats();
        assert!(stats.concurrency_limit < HELD as usize, "{stats:?}");
        // Nothing starts beside them, and none of them is gone.
        assert_eq!(gate.waiting(), HELD as usize);
        assert_eq!(stats.in_flight, HELD as usize);
        assert_eq!(stats.ready, 1);
        // And the judge is told why the key waits.
        let evidence = Evidence::new().reason(OTHER, began, Instant::now());
        gate.open();
        let report = producer.finish(evidence.concurrency(20)).await;
        assert_eq!(report.done, HELD + QUICK + 500);
    });
}

#[test]
fn ranges_that_do_not_fit_are_refused() {
    let refused = |adaptive| {
        paused().block_on(async {
            let script = Script::new(&History::new());
            let built = dispatcher().adaptive_concurrency(adaptive);
            built.spawn(scripted(script)).err()
        })
    };
    let name = "adaptive_concurrency";
    assert_eq!(
        refused(Adaptive::between(0, 5)),
        Some(BuildError::Zero(name))
    );
    let empty = BuildError::EmptyRange { min: 6, max: 5 };
    assert_eq!(refused(Adaptive::between(6, 5)), Some(empty));
    assert_eq!(
        empty.to_string(),
        "`adaptive_concurrency` has the range 6 to 5: give the smaller limit first"
    );
    assert_eq!(
        refused(Adaptive::between(1, usize::MAX)),
        Some(BuildError::TooLarge(name))
    );
    assert_eq!(refused(Adaptive::between(1, 1)), None);
    assert_eq!(refused(Adaptive::between(7, u32::MAX as usize)), None);
}

/// `concurrency` has no say then, and without the option it is what the gauge shows.
#[test]
fn the_gauge_shows_the_limit_in_force() {
    paused().block_on(async {
        let spawn = |builder: Option<Adaptive>| {
            let script = Script::new(&History::new());
            let dispatcher = dispatcher().concurrency(77);
            let dispatcher = match builder {
                Some(adaptive) => dispatcher.adaptive_concurrency(adaptive),
                None => dispatcher,
            };
            dispatcher
                .spawn(scripted(script))
                .unwrap()
                .stats()
                .concurrency_limit
        };
        assert_eq!(spawn(None), 77);
        assert_eq!(spawn(Some(Adaptive::between(3, 9))), 3);
        assert_eq!(spawn(Some(Adaptive::between(3, 9).initial(5))), 5);
        assert_eq!(spawn(Some(Adaptive::between(3, 9).initial(50))), 9);
    });
}
