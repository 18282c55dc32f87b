//! The user's code panics, wherever it is called: the attempt fails, the key goes on.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};

use keylane::error::{Failure, ReceiptError};
use keylane::watching::LaneState;
use keylane::{Context, Dispatcher, OnExhausted, Overflow, Retry};
use keylane_testkit::scenario::{
    MS, Producer, Random, SECOND, assert_no_engine_panics, assert_report_adds_up, dispatcher,
    on_both, paused, quiet, scripted, within,
};
use keylane_testkit::{Act, Evidence, History, Script};

use crate::support::boxed;

/// Panics without calling the hook: what is expected need not be printed.
fn panics(text: &'static str) -> ! {
    resume_unwind(Box::new(text))
}

/// A message that goes off when it is told to.
struct Mine {
    key: u64,
    in_drop: bool,
    in_clone: bool,
}

impl Mine {
    fn safe(key: u64) -> Self {
        Self {
            key,
            in_drop: false,
            in_clone: false,
        }
    }
}

impl Clone for Mine {
    fn clone(&self) -> Self {
        if self.in_clone {
            panics("the clone panics");
        }
        Self { ..*self }
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        if self.in_drop {
            panics("the drop of the message panics");
        }
    }
}

/// Fails where the drop of the message panics.
async fn handle(mine: Mine) -> Result<u64, &'static str> {
    tokio::task::yield_now().await;
    if mine.in_drop {
        Err("it fails")
    } else {
        Ok(mine.key)
    }
}

/// A handler that panics before there is a future.
#[test]
fn in_the_call_of_the_handler() {
    on_both(|| async {
        let orders = Dispatcher::builder(|n: &u64| n % 10)
            .spawn(boxed(|_, n| {
                if n >= 10 {
                    panics("in the call");
                }
                async move { Ok(n) }
            }))
            .unwrap();
        let failing = orders.submit(13).await.unwrap();
        let behind = orders.submit(3).await.unwrap();
        let told = within(failing).await.unwrap_err();
        assert_eq!(
            told,
            ReceiptError::Failed(Failure::Panicked("in the call".to_owned()))
        );
        assert_eq!(within(behind).await.unwrap(), 3);
        assert_report_adds_up(&within(async { orders.drain().await }).await);
        assert_eq!(orders.stats().panics, 1);
    });
}

#[test]
fn at_a_random_poll() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| {
            let mut dice = Random::new(cue.id ^ (u64::from(cue.attempt) << 32));
            let poll = 1 + dice.below(6) as u32;
            let act = if dice.one_in(2) && cue.attempt < 5 {
                Act::panic_at_poll(poll)
            } else {
                Act::ok().yields(poll)
            };
            if dice.one_in(5) {
                act.panics_in_drop()
            } else {
                act
            }
        });
        let orders = dispatcher()
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        for n in 0..400 {
            producer.send(Some(n % 9).filter(|key| *key > 0)).await;
        }
        let stats = producer.dispatcher.clone();
        let report = producer.finish(Evidence::new().max_attempts(5)).await;
        assert_eq!(report.done, 400);
        assert!(stats.stats().panics > 300, "{:?}", stats.stats());
    });
}

/// The answer stands, or the failure; the drop is counted beside it.
#[test]
fn in_the_drop_of_the_future() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history)
            .message(1, Act::ok().panics_in_drop())
            .message(2, Act::error().panics_in_drop())
            .message(3, Act::never().panics_in_drop())
            .message(4, Act::ok().sleeps(MS).panics_in_drop());
        let orders = dispatcher()
            .attempt_timeout(SECOND)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let mut answers = Vec::new();
        for _ in 1..=5 {
            answers.push(producer.submit(1).await.await.is_ok());
        }
        assert_eq!(answers, [true, false, false, true, true]);
        let stats = producer.dispatcher.stats();
        assert_eq!((stats.panics, stats.timeouts, stats.failures), (4, 1, 2));
        producer.finish(Evidence::new().discarded([2, 3])).await;
    });
}

/// What a future holds when it is dropped by `abort` may panic too: all is handed back all the same.
#[test]
fn in_the_drop_of_a_future_that_is_aborted() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::never().panics_in_drop());
        let orders = dispatcher()
            .retry(Retry::fixed(MS))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let ids = [
            producer.send_all(1, 3).await,
            producer.send_all(None, 2).await,
        ]
        .concat();
        within(async {
            while producer.dispatcher.stats().in_flight < 3 || history.position() < 8 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let report = within(async { producer.dispatcher.abort().await }).await;
        assert_eq!((report.handed_back, report.interrupted), (5, 3));
        assert_eq!(report.returned.len(), 5);
        producer.judge(&report, Evidence::new().handed_back(ids));
    });
}

/// A panic may carry anything, and that may panic when it is dropped.
#[test]
fn in_the_drop_of_what_a_panic_carries() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panics("the drop of the payload panics");
        }
    }
    paused().block_on(async {
        let orders = Dispatcher::builder(|n: &u64| n % 10)
            .spawn(boxed(|_, n| async move {
                if n >= 10 {
                    let payload: Box<dyn Any + Send> = Box::new(Payload);
                    resume_unwind(payload);
                }
                Ok(n)
            }))
            .unwrap();
        let failing = orders.submit(11).await.unwrap();
        let behind = orders.submit(1).await.unwrap();
        let told = failing.await.unwrap_err();
        let text = "a panic without a message".to_owned();
        assert_eq!(told, ReceiptError::Failed(Failure::Panicked(text)));
        assert_eq!(behind.await.unwrap(), 1);
        assert_report_adds_up(&orders.drain().await);
        assert_no_engine_panics();
    });
}

/// The attempt never got its message: it fails like any other, and is retried like any other.
#[test]
fn in_the_clone_of_the_message() {
    paused().block_on(async {
        for policy in [OnExhausted::Discard, OnExhausted::Halt] {
            let halts = matches!(policy, OnExhausted::Halt);
            let orders = Dispatcher::builder(|mine: &Mine| mine.key)
                .retry(Retry::fixed(MS).max_attempts(2))
                .on_exhausted(policy)
                .spawn(handle)
                .unwrap();
            let bad = Mine {
                in_clone: true,
                ..Mine::safe(1)
            };
            let failing = orders.submit(bad).await.unwrap();
            let behind = orders.submit(Mine::safe(1)).await.unwrap();
            tokio::time::sleep(SECOND).await;
            if halts {
                assert!(orders.lane(&1).skip().is_ok());
            }
            let Err(ReceiptError::Failed(failure)) = failing.await else {
                panic!("it fails")
            };
            assert_eq!(failure, Failure::Panicked("the clone panics".to_owned()));
            assert_eq!(behind.await.map_err(|_| "fails"), Ok(1));
            assert_eq!(orders.stats().failures, 2);
            assert_report_adds_up(&orders.drain().await);
        }
        assert_no_engine_panics();
    });
}

/// Dropped by the handler, by a policy, by a full lane: no drop of a message takes a lane with it.
#[test]
fn in_the_drop_of_the_message() {
    on_both(|| async {
        for kept in [false, true] {
            let builder = Dispatcher::builder(|mine: &Mine| mine.key);
            let builder = if kept {
                builder.retry(Retry::fixed(MS).max_attempts(2))
            } else {
                builder
            };
            let orders = builder
                .lane_capacity(2, Overflow::DropOldest)
                .spawn(handle)
                .unwrap();
            for _ in 0..50 {
                for in_drop in [true, false, true, true] {
                    orders
                        .send(Mine {
                            in_drop,
                            ..Mine::safe(1)
                        })
                        .await
                        .unwrap();
                    tokio::task::yield_now().await;
                }
                drop(
                    orders
                        .submit(Mine {
                            in_drop: true,
                            ..Mine::safe(2)
                        })
                        .await
                        .unwrap(),
                );
            }
            let last = orders.submit(Mine::safe(3)).await.unwrap();
            assert!(matches!(within(last).await, Ok(3)));
            let report = within(async { orders.drain().await }).await;
            assert_report_adds_up(&report);
            assert_eq!(report.accepted, 251);
            assert_eq!(orders.stats().lanes, 0);
        }
        assert_no_engine_panics();
    });
}

/// An error is shown by its `Debug` where a lane waits and in what is logged.
#[test]
fn in_the_debug_of_the_error() {
    struct Unspeakable;
    impl fmt::Debug for Unspeakable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panics("the error has no words")
        }
    }
    paused().block_on(async {
        let orders = Dispatcher::builder(|n: &u64| *n)
            .retry(Retry::fixed(SECOND).max_attempts(2))
            .on_exhausted(OnExhausted::Halt)
            .spawn(|ctx: Context<u64>, n: u64| async move {
                if n == 1 {
                    Err(Unspeakable)
                } else {
                    Ok(ctx.attempt())
                }
            })
            .unwrap();
        let receipt = orders.submit(1).await.unwrap();
        quiet().await;
        let LaneState::Backoff { why, .. } = orders.inspect(&1).unwrap().state else {
            panic!("it backs off")
        };
        assert_eq!(why, "an error whose `Debug` panics");
        tokio::time::sleep(2 * SECOND).await;
        assert!(matches!(
            orders.inspect(&1).unwrap().state,
            LaneState::Halted { .. }
        ));
        orders.lane(&1).skip().unwrap();
        let told = receipt.await;
        assert!(matches!(
            told,
            Err(ReceiptError::Failed(Failure::Error(Unspeakable)))
        ));
        assert_report_adds_up(&orders.drain().await);
        assert_no_engine_panics();
    });
}

/// Answers and errors without a receipt are dropped by the engine.
#[test]
fn in_the_drop_of_answers_and_errors() {
    #[derive(Debug)]
    struct Sharp;
    impl Drop for Sharp {
        fn drop(&mut self) {
            panics("the drop of an answer panics");
        }
    }
    on_both(|| async {
        let orders = Dispatcher::builder(|n: &u64| n % 2)
            .retry(Retry::fixed(MS).max_attempts(2))
            .spawn(|n: u64| async move {
                if n.is_multiple_of(3) {
                    Err(Sharp)
                } else {
                    Ok(Sharp)
                }
            })
            .unwrap();
        for n in 0..30 {
            if n % 4 == 0 {
                drop(orders.submit(n).await.unwrap());
            } else {
                orders.send(n).await.unwrap();
            }
        }
        let report = within(async { orders.drain().await }).await;
        assert_report_adds_up(&report);
        assert_eq!((report.done, report.discarded), (20, 10));
        assert_no_engine_panics();
    });
}

/// A receipt is polled by any task that holds it, with a waker that may be anything.
#[test]
fn in_the_waker_of_a_receipt() {
    struct Touchy;
    impl std::task::Wake for Touchy {
        fn wake(self: Arc<Self>) {
            panics("the waker panics");
        }
    }
    paused().block_on(async {
        let (go, gone) = tokio::sync::watch::channel(false);
        let orders = Dispatcher::builder(|_: &u64| 1_u64)
            .spawn(boxed(move |_, n| {
                let mut gone = gone.clone();
                async move {
                    gone.wait_for(|go| *go).await.map_err(|_| ())?;
                    Ok(n)
                }
            }))
            .unwrap();
        let waker = std::task::Waker::from(Arc::new(Touchy));
        let mut cx = TaskContext::from_waker(&waker);
        let mut receipts: Vec<_> = Vec::new();
        for n in 1..=3 {
            receipts.push(orders.submit(n).await.unwrap());
        }
        for receipt in &mut receipts {
            assert!(Pin::new(receipt).poll(&mut cx).is_pending());
        }
        quiet().await;
        go.send(true).unwrap();
        quiet().await;
        let mut answers = Vec::new();
        for receipt in receipts {
            answers.push(receipt.await.unwrap());
        }
        assert_eq!(answers, [1, 2, 3]);

        // And where messages are handed back to their receipts.
        go.send(false).unwrap();
        let mut receipts = vec![
            orders.submit(4).await.unwrap(),
            orders.submit(5).await.unwrap(),
        ];
        for receipt in &mut receipts {
            assert!(Pin::new(receipt).poll(&mut cx).is_pending());
        }
        quiet().await;
        let report = within(async { orders.abort().await }).await;
        assert_report_adds_up(&report);
        assert_eq!((report.done, report.handed_back), (3, 2));
        assert_no_engine_panics();
    });
}

/// The key function runs in the sender, and panics there: nothing is accepted.
#[test]
fn in_the_key_function() {
    paused().block_on(async {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let orders = Dispatcher::builder(move |n: &u64| {
            count.fetch_add(1, Ordering::SeqCst);
            if *n == 13 {
                panics("no key for 13");
            }
            *n
        })
        .capacity(2)
        .spawn(boxed(|_, n| async move { Ok(n) }))
        .unwrap();
        for _ in 0..5 {
            let sender = orders.clone();
            let sent = tokio::spawn(async move { sender.send(13).await }).await;
            assert!(sent.unwrap_err().is_panic());
            let permit = orders.clone();
            let sent = tokio::spawn(async move {
                poll_fn(|_| Poll::Ready(())).await;
                permit.reserve().await.unwrap().send(13)
            });
            assert!(sent.await.unwrap_err().is_panic());
        }
        assert_eq!(orders.stats().capacity_left, 2);
        let receipt = orders.submit(1).await.unwrap();
        assert_eq!(receipt.await, Ok(1));
        assert_eq!(orders.drain().await.accepted, 1);
    });
}
