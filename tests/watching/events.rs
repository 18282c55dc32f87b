//! `Dispatcher::events`: every kind, the loss count, the end of the stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use futures::{FutureExt, StreamExt};
use keylane::discipline::{OnGap, Sequence};
use keylane::error::BuildError;
use keylane::watching::Event;
use keylane::{Dispatcher, OnExhausted, Overflow, Retry};
use keylane_testkit::scenario::{MS, paused, threads, within};
use keylane_testkit::{Gate, History, LetterBox};
use tokio::time::Instant;

use crate::support::boxed;

/// What happened, without the time, to be compared.
fn text(event: Event<u64>) -> String {
    match event {
        Event::DeadLettered {
            key, attempts, why, ..
        } => format!("dead-lettered {key:?} {attempts} {why}"),
        Event::Discarded {
            key, attempts, why, ..
        } => format!("discarded {key:?} {attempts} {why}"),
        Event::Halted {
            key, attempts, why, ..
        } => format!("halted {key} {attempts} {why}"),
        Event::Overflowed { key, policy, .. } => format!("overflowed {key} {policy:?}"),
        Event::Stuck { key, .. } => format!("stuck {key:?}"),
        Event::Gap {
            key, first, last, ..
        } => format!("gap {key} {first}..={last}"),
        other => format!("{other:?}"),
    }
}

/// All events until the dispatcher has ended.
async fn all(events: keylane::watching::Events<u64>) -> Vec<String> {
    events.map(text).collect().await
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_an_event_when_the_sink_has_it() {
    let letters = LetterBox::new(&History::new()).refuses(1);
    let orders = Dispatcher::key_by_opt(|n: &u64| (*n > 0).then_some(*n))
        .retry(Retry::fixed(1_000 * MS).max_attempts(2))
        .on_exhausted(OnExhausted::dead_letter(letters.sink(|n: &u64| *n)))
        .spawn(boxed(|_| async move { Err("no") }))
        .unwrap();
    let start = Instant::now();
    let mut events = orders.events();
    orders.send(7).await.unwrap();
    tokio::time::sleep(1_050 * MS).await;
    // Given up on, and refused by the sink.
    assert_eq!((letters.refused().len(), letters.letters().len()), (1, 0));
    assert_eq!(events.try_recv(), None);
    let event = events.recv().await.unwrap();
    let since = event.at() - start;
    assert!(since >= 1_100 * MS && since < 1_200 * MS, "{since:?}");
    assert_eq!(
        text(event),
        "dead-lettered Some(7) 2 the handler failed: \"no\""
    );
    orders.send(0).await.unwrap();
    orders.drain().await;
    assert_eq!(
        all(events).await,
        ["dead-lettered None 2 the handler failed: \"no\""]
    );
}

#[tokio::test]
async fn a_discarded_message_is_an_event_with_and_without_a_clone_kept() {
    for keeps in [false, true] {
        let orders = Dispatcher::builder(|n: &u64| *n);
        let orders = match keeps {
            true => orders.on_exhausted(OnExhausted::Discard),
            false => orders,
        };
        let orders = orders
            .spawn(boxed(
                |n| async move { if n == 1 { Err("no") } else { Ok(n) } },
            ))
            .unwrap();
        let events = orders.events();
        for n in [1, 2] {
            orders.send(n).await.unwrap();
        }
        orders.drain().await;
        assert_eq!(
            all(events).await,
            ["discarded Some(1) 1 the handler failed: \"no\""]
        );
    }
}

#[test]
fn a_subscriber_that_hears_of_a_halt_can_act_on_it() {
    threads().block_on(async {
        let orders = Dispatcher::builder(|n: &u64| *n)
            .on_exhausted(OnExhausted::Halt)
            .spawn(boxed(|_| async move { Err("no") }))
            .unwrap();
        let mut events = orders.events();
        for n in 0..200 {
            orders.send(n).await.unwrap();
            let event = events.recv().await.unwrap();
            let key = *event.key().unwrap();
            assert_eq!(
                text(event),
                format!("halted {n} 1 the handler failed: \"no\"")
            );
            orders.lane(&key).skip().unwrap();
        }
        orders.drain().await;
        // Skipping is an operator's doing and no event.
        assert_eq!(all(events).await, [""; 0]);
    });
}

#[tokio::test(start_paused = true)]
async fn a_full_lane_is_an_event_by_its_policy() {
    for (policy, expected) in [
        // Once, until it has been half empty.
        (Overflow::Wait, &["overflowed 5 Wait"; 2][..]),
        (Overflow::Reject, &["overflowed 5 Reject"; 2]),
        // For each message.
        (Overflow::DropOldest, &["overflowed 5 DropOldest"; 6]),
        (
            Overflow::DeadLetter,
            &[
                "overflowed 5 DeadLetter",
                "overflowed 5 DeadLetter",
                "overflowed 5 DeadLetter",
                "dead-lettered Some(5) 0 the lane of the key was full",
                "dead-lettered Some(5) 0 the lane of the key was full",
                "overflowed 5 DeadLetter",
                "overflowed 5 DeadLetter",
                "overflowed 5 DeadLetter",
                "dead-lettered Some(5) 0 the lane of the key was full",
                "dead-lettered Some(5) 0 the lane of the key was full",
                "dead-lettered Some(5) 0 the lane of the key was full",
                "dead-lettered Some(5) 0 the lane of the key was full",
            ],
        ),
    ] {
        let gate = Gate::new();
        let shut = gate.clone();
        let letters = LetterBox::new(&History::new()).refuses(1);
        let orders = Dispatcher::builder(|n: &u64| *n)
            .lane_capacity(4, policy)
            .overflow_sink(letters.sink(|n: &u64| *n))
            .spawn(boxed(move |n| {
                let pass = shut.pass();
                async move {
                    pass.await;
                    Ok(n)
                }
            }))
            .unwrap();
        let events = orders.events();
        for _ in 0..2 {
            // Not seen full before all are in the channel.
            for _ in 0..7 {
                let _ = orders.try_send(5);
            }
            tokio::time::sleep(MS).await;
            gate.release(7);
            tokio::time::sleep(MS).await;
        }
        gate.open();
        orders.drain().await;
        assert_eq!(all(events).await, expected, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_of_one_is_full_with_its_first_message() {
    let orders = Dispatcher::builder(|n: &u64| *n)
        .lane_capacity(1, Overflow::Wait)
        .spawn(boxed(|n| async move { Ok(n) }))
        .unwrap();
    let events = orders.events();
    orders.send(1).await.unwrap();
    orders.drain().await;
    assert_eq!(all(events).await, ["overflowed 1 Wait"]);
}

#[test]
fn a_handler_that_blocks_is_an_event_once() {
    threads().block_on(async {
        let (let_go, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let orders = Dispatcher::builder(|n: &u64| *n)
            .stuck_after(4 * MS)
            .spawn(boxed(move |n| {
                let blocked = Arc::clone(&blocked);
                async move {
                    // What must not be done.
                    blocked.lock().unwrap().recv().unwrap();
                    Ok(n)
                }
            }))
            .unwrap();
        let mut events = orders.events();
        orders.send(3).await.unwrap();
        let event = events.recv().await.unwrap();
        assert!(matches!(event, Event::Stuck { lasted, .. } if lasted >= 4 * MS));
        assert_eq!(text(event), "stuck Some(3)");
        let_go.send(()).unwrap();
        orders.drain().await;
        assert_eq!(all(events).await, [""; 0]);
    });
}

/// Whether a [`Fragile`] key panics when it is cloned.
static IS_FRAGILE: AtomicBool = AtomicBool::new(false);

#[derive(PartialEq, Eq, Hash, Debug)]
struct Fragile(u64);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(!IS_FRAGILE.load(Ordering::SeqCst), "the clone panics");
        Self(self.0)
    }
}

/// The key is missing in the event and in the line, and the watchdog goes on.
#[test]
fn a_handler_that_blocks_is_an_event_also_if_its_key_cannot_be_cloned() {
    threads().block_on(async {
        let (let_go, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let orders = Dispatcher::builder(|n: &u64| Fragile(*n))
            .trace_keys()
            // Longer than a thread waits for a processor: the key must be fragile by then.
            .stuck_after(200 * MS)
            .spawn(boxed(move |n| {
                let blocked = Arc::clone(&blocked);
                async move {
                    IS_FRAGILE.store(n == 1, Ordering::SeqCst);
                    // What must not be done.
                    blocked.lock().unwrap().recv().unwrap();
                    Ok(n)
                }
            }))
            .unwrap();
        let mut events = orders.events();
        for (n, expected) in [(1, None), (2, Some(2))] {
            let receipt = orders.submit(n).await.unwrap();
            let Some(Event::Stuck { key, .. }) = within(events.recv()).await else {
                panic!("nothing else happens")
            };
            assert_eq!(key, expected.map(Fragile));
            IS_FRAGILE.store(false, Ordering::SeqCst);
            let_go.send(()).unwrap();
            assert_eq!(within(receipt).await, Ok(n));
        }
        orders.drain().await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_never_reads_blocks_nothing_and_counts_its_loss() {
    let orders = Dispatcher::builder(|n: &u64| *n)
        .event_capacity(10)
        .spawn(boxed(|_| async move { Err("no") }))
        .unwrap();
    let mut events = orders.events();
    for n in 0..1_000 {
        orders.send(n).await.unwrap();
    }
    let report = orders.drain().await;
    assert_eq!(report.discarded, 1_000);
    assert_eq!(events.lost(), 990);
    let kept: Vec<_> = std::iter::from_fn(|| events.try_recv())
        .map(|event| *event.key().unwrap())
        .collect();
    assert_eq!(kept, (990..1_000).collect::<Vec<_>>());
    assert_eq!(events.recv().await, None);
    assert_eq!(events.lost(), 990);
}

#[tokio::test(start_paused = true)]
async fn the_stream_ends_for_each_that_waits_however_the_dispatcher_ends() {
    // By a call, by the last handle, and after the end.
    let plain = || {
        Dispatcher::builder(|n: &u64| *n)
            .spawn(boxed(|n| async move { Ok(n) }))
            .unwrap()
    };
    let orders = plain();
    let mut events = orders.events();
    let waits = tokio::spawn(async move { events.recv().await });
    orders.close().await;
    assert_eq!(waits.await.unwrap(), None);
    assert_eq!(orders.events().recv().await, None);

    let orders = plain();
    let mut events = orders.events();
    drop(orders);
    assert_eq!(events.recv().await, None);
}

#[test]
fn the_stream_ends_with_the_runtime() {
    let runtime = paused();
    let (orders, mut events) = runtime.block_on(async {
        let orders = Dispatcher::builder(|n: &u64| *n)
            .spawn(boxed(|_| std::future::pending()))
            .unwrap();
        orders.send(1).await.unwrap();
        tokio::task::yield_now().await;
        let events = orders.events();
        (orders, events)
    });
    assert_eq!(events.recv().now_or_never(), None);
    drop(runtime);
    assert_eq!(events.recv().now_or_never(), Some(None));
    drop(orders);
}

#[tokio::test(start_paused = true)]
async fn recv_that_is_dropped_takes_nothing() {
    let orders = Dispatcher::builder(|n: &u64| *n)
        .spawn(boxed(|_| async move { Err("no") }))
        .unwrap();
    let mut events = orders.events();
    assert!(events.recv().now_or_never().is_none());
    orders.send(1).await.unwrap();
    {
        let recv = events.recv();
        tokio::time::sleep(MS).await;
        drop(recv);
    }
    assert_eq!(events.recv().await.unwrap().key(), Some(&1));
}

/// A waker of the user's that panics.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("in a waker"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_does_no_harm() {
    let orders = Dispatcher::builder(|n: &u64| *n)
        .spawn(boxed(|_| async move { Err("no") }))
        .unwrap();
    let (mut bad, mut good) = (orders.events(), orders.events());
    let waker = Waker::from(Arc::new(Bomb));
    let mut cx = Context::from_waker(&waker);
    assert_eq!(bad.poll_next_unpin(&mut cx), Poll::Pending);
    orders.send(1).await.unwrap();
    assert_eq!(good.recv().await.unwrap().key(), Some(&1));
    assert_eq!(bad.try_recv().unwrap().key(), Some(&1));
    assert_eq!(bad.poll_next_unpin(&mut cx), Poll::Pending);
    let report = orders.drain().await;
    assert_eq!(report.discarded, 1);
    assert_eq!(good.recv().await, None);
}

#[tokio::test]
async fn no_capacity_is_refused() {
    let built = Dispatcher::builder(|n: &u64| *n)
        .event_capacity(0)
        .spawn(boxed(|n| async move { Ok(n) }));
    assert_eq!(built.unwrap_err(), BuildError::Zero("event_capacity"));
}

/// Missing versions are an event at their time-out and not before, with what becomes of the key.
#[tokio::test(start_paused = true)]
async fn a_gap_is_an_event_when_its_time_has_come() {
    let patience = 5_000 * MS;
    for (on_gap, expected) in [
        (OnGap::Skip, vec!["gap 7 2..=4"]),
        (
            OnGap::Halt,
            vec!["gap 7 2..=4", "halted 7 0 versions 2 to 4 are missing"],
        ),
    ] {
        // Change 72 is version 2 of key 7.
        let version = |change: &u64| change % 10;
        let changes = Dispatcher::builder(|change: &u64| change / 10)
            .sequence(Sequence::contiguous(version).gap_timeout(patience, on_gap))
            .spawn(boxed(|change| async move { Ok(change) }))
            .unwrap();
        let mut events = changes.events();
        for change in [71, 76, 75] {
            changes.send(change).await.unwrap();
        }
        tokio::time::sleep(patience - MS).await;
        assert_eq!(events.try_recv().map(text), None, "{on_gap:?}");
        tokio::time::sleep(2 * MS).await;
        changes.drain().await;
        assert_eq!(all(events).await, expected, "{on_gap:?}");
    }
}
