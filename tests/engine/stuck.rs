//! A handler that blocks its thread is reported; it cannot be stopped.

use std::sync::{Arc, Condvar, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use keylane::error::BoxError;
use keylane::source::{Features, RawMessage};
use keylane::{Dispatcher, OnExhausted};
use keylane_testkit::Lines;
use keylane_testkit::reference::ReferenceServer;
use keylane_testkit::scenario::{MS, paused, settle_until, threads, until, within};
use tokio::runtime::Builder;

use crate::support::boxed;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a handler blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blocks {
    InItsCall,
    InAPoll,
    AfterAWait,
}

#[test]
fn a_handler_that_blocks_in_its_call_is_reported_once() {
    reported_once(Blocks::InItsCall);
}

#[test]
fn a_handler_that_blocks_in_a_poll_is_reported_once() {
    reported_once(Blocks::InAPoll);
}

/// Its worker was the one that waits for timers, and no other one does that in its place.
#[test]
fn a_handler_that_blocks_after_a_wait_is_reported_once() {
    reported_once(Blocks::AfterAWait);
}

fn reported_once(blocks: Blocks) {
    let stuck_after = match blocks {
        // No timer of the watchdog comes together with that of the handler.
        Blocks::AfterAWait => 200 * MS,
        _ => 4 * MS,
    };
    threads().block_on(async {
        let (let_go, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let (entered, mut inside) = tokio::sync::mpsc::unbounded_channel();
        let orders = Dispatcher::builder(|n: &u64| *n)
            .stuck_after(stuck_after)
            .spawn(boxed(move |_, n| {
                let (entered, blocked) = (entered.clone(), Arc::clone(&blocked));
                // On the thread, and not by waiting in the future: this is what must not be done.
                let block = move || {
                    entered.send(()).unwrap();
                    blocked.lock().unwrap().recv().unwrap();
                };
                let mut block = (n == 1).then_some(block);
                if blocks == Blocks::InItsCall
                    && let Some(block) = block.take()
                {
                    block();
                }
                async move {
                    match blocks {
                        Blocks::AfterAWait => tokio::time::sleep(5 * MS).await,
                        _ => tokio::task::yield_now().await,
                    }
                    if let Some(block) = block {
                        block();
                    }
                    Ok(n)
                }
            }))
            .unwrap();
        let receipt = orders.submit(1).await.unwrap();
        within(inside.recv()).await.unwrap();
        settle_until(|| orders.stats().stuck > 0).await;
        // The other thread goes on, and it is still the same poll.
        for n in 2..50 {
            assert_eq!(within(orders.submit(n).await.unwrap()).await, Ok(n));
        }
        assert_eq!(orders.stats().stuck, 1);
        let_go.send(()).unwrap();
        assert_eq!(within(receipt).await, Ok(1));
        let report = within(async { orders.drain().await }).await;
        assert_eq!(report.done, 49);
        assert_eq!(orders.stats().stuck, 1);
    });
}

/// Of the line from outside the runtime.
const NOTHING_RUNS: &str = "no other thread of the runtime is free";

/// The lines of this process: the thread that reports belongs to no runtime.
fn all_lines() -> &'static Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    LINES.get_or_init(|| {
        let lines = Lines::new();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::ERROR)
            .with_ansi(false)
            .with_writer(lines.writer())
            .finish();
        tracing::subscriber::set_global_default(subscriber).expect("no other test sets one");
        lines
    })
}

/// The runtime has one thread. So the driver, which knows the position, runs when the handler has
/// returned.
#[test]
fn the_message_of_a_handler_that_has_blocked_every_thread_is_named() {
    let blocks = || all_lines().with(NOTHING_RUNS);
    let blocks = move || blocks().into_iter().find(|line| line.contains("user-7"));
    assert!(blocks().is_none());
    let server = ReferenceServer::new(Features::new());
    let mut message = RawMessage::new("250").key("user-7");
    message.id = Some("order-4711".into());
    server.publish([message]);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let orders = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .trace_keys()
            .on_exhausted(OnExhausted::Discard)
            .stuck_after(20 * MS)
            .spawn(move |_: RawMessage| {
                let until = Instant::now() + PATIENCE;
                while blocks().is_none() && Instant::now() < until {
                    // What must not be done.
                    thread::sleep(MS);
                }
                async move { Ok::<_, BoxError>(()) }
            })
            .unwrap();
        let intake = orders.consume(server.source()).unwrap();
        until(|| intake.stats().acked == 1).await;
        intake.stop().await;
    });
    let of_message = |line: &String| line.contains("user-7");
    let all = all_lines().all().into_iter().filter(of_message);
    let [now, later] = &Vec::from_iter(all)[..] else {
        panic!("{:#?}", all_lines().all());
    };
    let fields = "key=b\"user-7\" source=reference";
    assert!(now.contains(&format!("{fields} elapsed=")), "{now}");
    let fields = format!("{fields} position=0:0#1 id=order-4711");
    assert!(
        later.contains("blocked all threads") && later.contains(&fields),
        "{later}"
    );
}

/// Nothing of the runtime runs, and what is outside it says so.
#[test]
fn handlers_that_block_every_thread_are_reported() {
    let lines = || all_lines().with(NOTHING_RUNS);
    // The other test shows its key.
    let lines = || Vec::from_iter(lines().into_iter().filter(|line| line.contains("key=#")));
    for mut builder in [Builder::new_multi_thread(), Builder::new_current_thread()] {
        let runtime = builder.worker_threads(2).enable_time().build().unwrap();
        let threads = runtime.metrics().num_workers() as u64;
        let let_go = Arc::new((Mutex::new(false), Condvar::new()));
        let blocked = Arc::clone(&let_go);
        let _inside = runtime.enter();
        let orders = Dispatcher::builder(|n: &u64| *n)
            .stuck_after(200 * MS)
            .spawn(boxed(move |_, n| {
                let blocked = Arc::clone(&blocked);
                async move {
                    let (has_gone, changed) = &*blocked;
                    let mut has_gone = has_gone.lock().unwrap();
                    while !*has_gone {
                        // What must not be done.
                        has_gone = changed.wait(has_gone).unwrap();
                    }
                    Ok(n)
                }
            }))
            .unwrap();
        for n in 0..threads {
            orders.try_send(n).unwrap();
        }
        let before = lines().len() as u64;
        let end = orders.drain();
        thread::scope(|scope| {
            let runs = scope.spawn(|| runtime.block_on(end.into_future()));
            let until = Instant::now() + PATIENCE;
            // One of two may be reported while the other has not begun. A line comes after its count.
            let lines_now = || lines().len() as u64;
            let is_reported = || orders.stats().stuck >= threads && lines_now() > before;
            while !is_reported() && Instant::now() < until {
                thread::sleep(MS);
            }
            let reported = is_reported();
            *let_go.0.lock().unwrap() = true;
            let_go.1.notify_all();
            // Not before: the scope waits for the handlers.
            assert!(reported, "nothing was reported: {:?}", all_lines().all());
            assert_eq!(runs.join().unwrap().done, threads);
        });
        assert_eq!(orders.stats().stuck, threads, "each is reported once");
    }
}

/// One that waits as it should may take as long as it likes.
#[test]
fn a_handler_that_waits_is_not_stuck() {
    paused().block_on(async {
        let orders = Dispatcher::builder(|n: &u64| *n)
            // By the clock of the machine no poll takes that long.
            .stuck_after(60_000 * MS)
            .spawn(boxed(|_, n| async move {
                tokio::time::sleep(1_000 * 60_000 * MS).await;
                Ok(n)
            }))
            .unwrap();
        orders.send(1).await.unwrap();
        assert_eq!(orders.drain().await.done, 1);
        assert_eq!(orders.stats().stuck, 0);
    });
}
