//! What handlers, senders, operators and settings may do at worst, and no other key feels it.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as TaskContext, Wake, Waker};
use std::time::Duration;

use keylane::error::{BuildError, Failure, ReceiptError};
use keylane::{Dispatcher, OnExhausted, Overflow, Retry, RetryBudget};
use keylane_testkit::Gate;
use keylane_testkit::scenario::{
    MS, SECOND, assert_no_engine_panics, assert_nothing_left, assert_report_adds_up, paused, quiet,
    settle_until, threads, within,
};

use crate::support::boxed;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Waits as [`within`] does, in a service where other tasks are spawned now and then.
///
/// A worker of Tokio that goes to sleep at the very moment in which another one finds work does not
/// look at the queue of that one again. If a handler then blocks that one, what is in its queue stays
/// there until something wakes the worker that sleeps. A task of any kind does.
async fn within_a_service<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let awake = async {
        loop {
            match tokio::time::timeout(10 * MS, future.as_mut()).await {
                Ok(output) => return output,
                Err(_) => drop(tokio::spawn(async {})),
            }
        }
    };
    within(awake).await
}

/// One handler waits, and the next one keeps its thread. With a second thread all others run.
#[test]
fn a_blocked_thread_beside_a_waiting_handler_stops_no_other() {
    threads().block_on(async {
        for round in 0..20 {
            let gate = Gate::new();
            let at_gate = gate.clone();
            let (let_go, blocked) = mpsc::channel::<()>();
            let blocked = Arc::new(Mutex::new(blocked));
            let orders = Dispatcher::builder(|n: &u64| *n)
                .spawn(boxed(move |_, n| {
                    let (pass, blocked) = (at_gate.pass(), Arc::clone(&blocked));
                    async move {
                        match n {
                            0 => pass.await,
                            // Until the test lets go, or is over.
                            1 => drop(blocked.lock().unwrap().recv()),
                            _ => {}
                        }
                        Ok(n)
                    }
                }))
                .unwrap();
            orders.try_send(0).unwrap();
            within(gate.arrivals(1)).await;
            let all: Vec<_> = (1..=20).map(|n| orders.try_submit(n).unwrap()).collect();
            let mut all = all.into_iter();
            let first = all.next().unwrap();
            for others in all {
                assert!(within_a_service(others).await.is_ok(), "round {round}");
            }
            let_go.send(()).unwrap();
            assert_eq!(within(first).await, Ok(1));
            gate.open();
            assert_eq!(within(orders.drain().into_future()).await.done, 21);
        }
    });
}

/// After a large batch the dispatcher task yields, on the very worker that a handler then blocks. The
/// watch gets it back on the other one.
#[test]
fn a_blocked_thread_does_not_keep_the_dispatcher() {
    threads().block_on(async {
        for round in 0..10 {
            let (let_go, blocked) = mpsc::channel::<()>();
            let blocked = Arc::new(Mutex::new(blocked));
            let orders = Dispatcher::builder(|n: &u64| *n)
                .stuck_after(20 * MS)
                .spawn(boxed(move |_, n| {
                    let blocked = Arc::clone(&blocked);
                    async move {
                        if n == 0 {
                            // Until the test lets go, or is over.
                            let _ = blocked.lock().unwrap().recv();
                        }
                        Ok(n)
                    }
                }))
                .unwrap();
            let sender = orders.clone();
            // From a worker and in one poll, so that they come as one batch.
            let sending = tokio::spawn(async move {
                for n in 0..100 {
                    sender.try_send(n).unwrap();
                }
            });
            within(sending).await.unwrap();
            let later = within(orders.submit(1_000)).await.unwrap();
            assert_eq!(within_a_service(later).await, Ok(1_000), "round {round}");
            let_go.send(()).unwrap();
            assert_eq!(within(orders.drain().into_future()).await.done, 101);
        }
    });
}

/// Its future leaves nothing of Tokio's budget for a timer that is asked after it.
#[test]
fn a_handler_that_spends_the_whole_budget_is_timed_out() {
    for (runtime, is_paused) in [(paused(), true), (threads(), false)] {
        runtime.block_on(async {
            let over = Arc::new(AtomicBool::new(false));
            let stop = Arc::clone(&over);
            let orders = Dispatcher::builder(|n: &u64| *n)
                .attempt_timeout(50 * MS)
                .spawn(boxed(move |_, n| {
                    let stop = Arc::clone(&stop);
                    async move {
                        while !stop.load(Ordering::Relaxed) {
                            tokio::task::consume_budget().await;
                        }
                        Ok(n)
                    }
                }))
                .unwrap();
            let receipt = orders.submit(1).await.unwrap();
            settle_until(|| orders.stats().in_flight == 1).await;
            if is_paused {
                // It never rests, so time only goes by when it is told to.
                for _ in 0..100 {
                    tokio::time::advance(MS).await;
                }
            } else {
                settle_until(|| orders.stats().timeouts == 1).await;
            }
            over.store(true, Ordering::Relaxed);
            let told = within(receipt).await;
            assert_eq!(told, Err(ReceiptError::Failed(Failure::TimedOut(50 * MS))));
            assert_report_adds_up(&within(orders.drain().into_future()).await);
        });
    }
}

struct Touchy;

impl Wake for Touchy {
    fn wake(self: Arc<Self>) {
        // Without the hook: what is expected need not be printed.
        std::panic::resume_unwind(Box::new("the waker panics"));
    }
}

/// Senders wait for room with a waker that may be anything, in the capacity and at a full lane.
#[test]
fn a_waker_of_a_sender_that_panics_loses_nothing() {
    paused().block_on(async {
        for (capacity, lane_capacity) in [(1, 8), (8, 1)] {
            let gate = Gate::new();
            let at_gate = gate.clone();
            let orders = Dispatcher::builder(|_: &u64| 0_u64)
                .capacity(capacity)
                .lane_capacity(lane_capacity, Overflow::Wait)
                .spawn(boxed(move |_, n| {
                    let pass = at_gate.pass();
                    async move {
                        pass.await;
                        Ok(n)
                    }
                }))
                .unwrap();
            let running = orders.submit(1).await.unwrap();
            within(gate.arrivals(1)).await;
            let waker = Waker::from(Arc::new(Touchy));
            {
                let mut sending = pin!(orders.send(2));
                let polled = sending.as_mut().poll(&mut TaskContext::from_waker(&waker));
                assert!(polled.is_pending(), "there is no room");
                gate.open();
                quiet().await;
            }
            assert_eq!(within(running).await, Ok(1));
            // The room went back with the sender that got it.
            let next = within(orders.submit(3)).await.unwrap();
            assert_eq!(within(next).await, Ok(3));
            let report = within(orders.drain().into_future()).await;
            assert_eq!((report.accepted, report.done), (2, 2));
            assert_nothing_left(&orders);
        }
        assert_no_engine_panics();
    });
}

/// Handles every message but those of key 0, which never end.
async fn all_but_zero(n: u64) -> Result<u64, ()> {
    if n == 0 {
        std::future::pending::<()>().await;
    }
    Ok(n)
}

/// 300 senders of the blocked key come all at once, and then one of another key.
async fn another_key_gets_in(orders: Dispatcher<u64, u64, u64, ()>) {
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let orders = orders.clone();
        senders.spawn(async move { orders.send(0).await.is_ok() });
    }
    quiet().await;
    let other = within(orders.submit(1)).await.unwrap();
    assert_eq!(within(other).await, Ok(1));
    senders.shutdown().await;
    let report = within(orders.abort().into_future()).await;
    assert_report_adds_up(&report);
    assert_nothing_left(&orders);
}

/// They are all on their way before the dispatcher has seen their lane full.
#[test]
fn senders_of_a_blocked_key_that_come_all_at_once_leave_room() {
    for overflow in [Overflow::Wait, Overflow::Reject] {
        paused().block_on(async {
            let orders = Dispatcher::builder(|n: &u64| *n)
                .capacity(64)
                .lane_capacity(4, overflow)
                .spawn(boxed(|_, n| all_but_zero(n)))
                .unwrap();
            another_key_gets_in(orders).await;
        });
    }
}

/// With no more set than the capacity, one key takes at most a quarter of it.
#[test]
fn the_lanes_of_a_small_capacity_are_smaller() {
    paused().block_on(async {
        let orders = Dispatcher::builder(|n: &u64| *n)
            .capacity(100)
            .spawn(boxed(|_, n| all_but_zero(n)))
            .unwrap();
        for _ in 0..25 {
            orders.send(0).await.unwrap();
        }
        quiet().await;
        assert!(orders.inspect(&0).unwrap().full, "{:?}", orders.stats());
        another_key_gets_in(orders).await;
    });
}

/// Ten minutes of an outage, with one retry in ten seconds for each key.
#[test]
fn a_budget_is_shared_out_evenly() {
    const KEYS: usize = 50;
    paused().block_on(async {
        let tries: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
        let tried = Arc::clone(&tries);
        let orders = Dispatcher::builder(|n: &u64| *n)
            .retry(Retry::fixed(10 * MS).max_attempts(u32::MAX))
            .retry_budget(RetryBudget::new().ratio(0.0).min_per_second(5))
            .spawn(boxed(move |_, n| {
                tried[n as usize].fetch_add(1, Ordering::SeqCst);
                async { Err(()) }
            }))
            .unwrap();
        for n in 0..KEYS as u64 {
            orders.send(n).await.unwrap();
        }
        tokio::time::sleep(600 * SECOND).await;
        let mut tries: Vec<_> = tries
            .iter()
            .map(|tries| tries.load(Ordering::SeqCst))
            .collect();
        tries.sort_unstable();
        assert!(tries.iter().sum::<u64>() > 2_900, "{tries:?}");
        assert!(tries[KEYS - 1] - tries[0] <= 3, "{tries:?}");
        assert_report_adds_up(&within(orders.abort().into_future()).await);
    });
}

/// It was to be tried again from its first attempt, and never was: the ones before still count.
#[test]
fn a_resumed_head_that_is_handed_back_knows_its_attempts() {
    paused().block_on(async {
        let gate = Gate::new();
        let at_gate = gate.clone();
        let orders = Dispatcher::builder(|n: &u64| *n)
            .concurrency(1)
            .retry(Retry::fixed(MS).max_attempts(2))
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(move |_, n| {
                let pass = at_gate.pass();
                async move {
                    if n > 0 {
                        return Err(());
                    }
                    pass.await;
                    Ok(n)
                }
            }))
            .unwrap();
        orders.send(1).await.unwrap();
        let receipt = orders.submit(2).await.unwrap();
        tokio::time::sleep(SECOND).await;
        assert_eq!(orders.stats().halted, 2);
        orders.send(0).await.unwrap();
        within(gate.arrivals(1)).await;
        for n in [1, 2] {
            orders.lane(&n).resume().unwrap();
        }
        let ending = tokio::spawn(orders.close().into_future());
        quiet().await;
        gate.open();
        let report = within(ending).await.unwrap();
        assert_report_adds_up(&report);
        let returned: Vec<_> = report
            .returned
            .iter()
            .map(|back| (back.message, back.attempts, back.interrupted))
            .collect();
        assert_eq!(returned, [(Some(1), 2, false)]);
        let told = within(receipt).await;
        let back = ReceiptError::HandedBack {
            message: 2,
            attempts: 2,
        };
        assert_eq!(told, Err(back));
    });
}

/// Where to tell of a drop, and where to wait for its end.
type Told = (mpsc::Sender<()>, mpsc::Receiver<()>);

/// A message whose drop waits, once it is told to: the thread that drops it stands there.
#[derive(Clone)]
struct Slow(Arc<Mutex<Option<Told>>>);

impl Drop for Slow {
    fn drop(&mut self) {
        let told = self.0.lock().unwrap().take();
        if let Some((inside, go_on)) = told {
            inside.send(()).unwrap();
            // Until the test lets go, or is over.
            let _ = go_on.recv();
        }
    }
}

/// The operator has the head in hand when the runtime goes: only the operator can settle it.
#[test]
fn skipping_while_the_runtime_goes_ends_with_a_report() {
    let runtime = threads();
    let slow = Slow(Arc::default());
    let told = Arc::clone(&slow.0);
    let orders = runtime.block_on(async {
        let orders = Dispatcher::builder(|_: &Slow| 1)
            .on_exhausted(OnExhausted::Halt)
            .spawn(|_: Slow| async { Err::<(), ()>(()) })
            .unwrap();
        orders.send(slow).await.unwrap();
        settle_until(|| orders.stats().halted == 1).await;
        orders
    });
    let (inside, is_inside) = mpsc::channel();
    let (let_go, go_on) = mpsc::channel();
    *told.lock().unwrap() = Some((inside, go_on));
    let lane = orders.lane(&1);
    let operator = std::thread::spawn(move || lane.skip());
    is_inside.recv_timeout(60 * SECOND).unwrap();
    drop(runtime);
    let_go.send(()).unwrap();
    assert_eq!(operator.join().unwrap(), Ok(()));
    paused().block_on(async {
        let report = within(orders.drain().into_future()).await;
        assert_report_adds_up(&report);
        assert_eq!((report.accepted, report.discarded), (1, 1));
        assert_nothing_left(&orders);
    });
}

/// Farther from the start of the runtime than Tokio's timers go.
#[test]
fn a_timer_may_be_far_away_after_a_long_life() {
    paused().block_on(async {
        let failures = AtomicU32::new(0);
        let orders = Dispatcher::builder(|n: &u64| *n)
            // Or the watch would wake up four times in each second of it.
            .stuck_after(2_000 * DAY)
            .retry(Retry::fixed(365 * DAY))
            .spawn(boxed(move |_, n| {
                let fails = failures.fetch_add(1, Ordering::SeqCst) == 0;
                async move { if fails { Err(()) } else { Ok(n) } }
            }))
            .unwrap();
        quiet().await;
        tokio::time::advance(500 * DAY).await;
        orders.send(1).await.unwrap();
        tokio::time::sleep(364 * DAY).await;
        assert_eq!(orders.stats().backing_off, 1, "{:?}", orders.stats());
        tokio::time::sleep(2 * DAY).await;
        assert_eq!(orders.stats().done, 1, "{:?}", orders.stats());
        assert_report_adds_up(&within(orders.drain().into_future()).await);
    });
}

#[test]
fn more_shards_than_there_is_memory_for_are_refused() {
    paused().block_on(async {
        let refused = Dispatcher::builder(|n: &u64| *n)
            .shards(1 << 62)
            .spawn(boxed(|_, n| async move { Ok(n) }));
        assert_eq!(refused.err(), Some(BuildError::TooLarge("shards")));
    });
}
