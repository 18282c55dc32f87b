//! I13: at quiescence lanes = 0, all room is back, and so is the heap.

use std::time::Duration;

use keylane::{Dispatcher, Overflow, Retry};
use keylane_testkit::scenario::{paused, threads};
use keylane_testkit::{Evidence, History, Rule};

use crate::support::Counting;

/// Small, because the table of lanes keeps the size of its fullest moment, and doubles it once when
/// lanes come and go at that height.
const CAPACITY: usize = 256;

/// What such tables and queues, the engine's and the runtime's, may have grown by the second time: a
/// sixteenth of a byte for each of a million keys.
const SLACK: u64 = 64 * 1024;

type Numbers = Dispatcher<u64, u64, (), &'static str>;

/// Until nothing is left to do, and the runners have seen it.
async fn settled(numbers: &Numbers) {
    while numbers.stats().lanes > 0 || numbers.stats().capacity_left < CAPACITY {
        tokio::task::yield_now().await;
    }
}

/// Sends so many keys, each once, and waits for all of it.
async fn run(numbers: &Numbers, keys: std::ops::Range<u64>) {
    for key in keys {
        numbers.send(key).await.unwrap();
    }
    settled(numbers).await;
}

/// The memory before and after, judged.
#[track_caller]
fn judge(counting: &Counting, numbers: &Numbers, before: u64) {
    let stats = numbers.stats();
    println!("{before} bytes before, {} after", counting.bytes());
    let evidence = Evidence::new()
        .lanes(stats.lanes)
        .permits(stats.capacity_left, CAPACITY)
        .heap(before, counting.bytes(), SLACK);
    let verdict = History::new().check(&evidence).unwrap();
    verdict.assert_judged(&[Rule::Memory]);
}

/// A million keys, each seen once, by a handler that answers at once or waits.
#[test]
fn a_million_keys_leave_nothing_behind() {
    let counting = Counting::begin();
    threads().block_on(async {
        let numbers = Dispatcher::builder(|n: &u64| *n)
            .capacity(CAPACITY)
            .spawn(|n: u64| async move {
                if n.is_multiple_of(50) {
                    tokio::task::yield_now().await;
                }
                Ok(())
            })
            .unwrap();
        run(&numbers, 0..50_000).await;
        let before = counting.bytes();
        run(&numbers, 50_000..1_050_000).await;
        judge(&counting, &numbers, before);
        assert_eq!(numbers.drain().await.done, 1_050_000);
    });
}

/// Keys that fail, wait, and are tried again; lanes that fill; messages that are given up.
#[test]
fn keys_in_trouble_leave_nothing_behind() {
    let counting = Counting::begin();
    paused().block_on(async {
        let numbers = Dispatcher::builder(|n: &u64| n / 4)
            .capacity(CAPACITY)
            .lane_capacity(2, Overflow::DropOldest)
            .attempt_timeout(Duration::from_millis(50))
            .retry(Retry::exponential(Duration::from_millis(10)).max_attempts(3))
            .spawn(|ctx: keylane::Context<u64>, n: u64| async move {
                match n % 8 {
                    0 => std::future::pending().await,
                    1 => return Err("never"),
                    2 if ctx.attempt() == 1 => return Err("not yet"),
                    3 => tokio::time::sleep(Duration::from_millis(1)).await,
                    _ => {}
                }
                Ok(())
            })
            .unwrap();
        let run = async |keys| {
            for key in keys {
                numbers.send(key).await.unwrap();
            }
            while numbers.stats().lanes > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        run(0..20_000).await;
        let before = counting.bytes();
        run(20_000..60_000).await;
        judge(&counting, &numbers, before);
        let stats = numbers.stats();
        let seen = [
            stats.retries,
            stats.timeouts,
            stats.overflowed,
            stats.discarded,
        ];
        assert!(seen.iter().all(|count| *count > 1_000), "{stats:?}");
    });
}

/// Dispatchers that come and go.
#[test]
fn dispatchers_that_have_ended_leave_nothing_behind() {
    let counting = Counting::begin();
    let threads = threads();
    let lives = async |count: u64| {
        for n in 0..count {
            let numbers = Dispatcher::builder(|n: &u64| n % 16)
                .spawn(|n: u64| async move {
                    tokio::task::yield_now().await;
                    if n == 7 { Err("seven") } else { Ok(()) }
                })
                .unwrap();
            let mut receipts = Vec::new();
            for n in 0..64 {
                receipts.push(numbers.submit(n).await.unwrap());
            }
            let report = match n % 3 {
                0 => numbers.drain().await,
                1 => numbers.close().await,
                _ => numbers.abort().await,
            };
            assert_eq!(report.accepted, 64);
        }
        // The last tasks see that there is nothing left to do.
        let metrics = tokio::runtime::Handle::current().metrics();
        while metrics.num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    };
    threads.block_on(lives(30));
    let before = counting.bytes();
    threads.block_on(lives(300));
    let after = counting.bytes();
    println!("{before} bytes before, {after} after");
    assert!(
        after <= before + SLACK,
        "{before} bytes before, {after} after"
    );
}
