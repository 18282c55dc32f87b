//! A handler that blocks its thread is reported; it cannot be stopped.

use std::sync::{Arc, Mutex, mpsc};

use keylane::Dispatcher;
use keylane_testkit::scenario::{MS, paused, settle_until, threads, within};

use crate::support::boxed;

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

/// One that waits as it should may take as long as it likes.
#[test]
fn a_handler_that_waits_is_not_stuck() {
    paused().block_on(async {
        let orders = Dispatcher::builder(|n: &u64| *n)
            .stuck_after(4 * MS)
            .spawn(boxed(|_, n| async move {
                tokio::time::sleep(1_000 * MS).await;
                Ok(n)
            }))
            .unwrap();
        orders.send(1).await.unwrap();
        assert_eq!(orders.drain().await.done, 1);
        assert_eq!(orders.stats().stuck, 0);
    });
}
