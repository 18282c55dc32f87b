//! The attempt time-out: the future is dropped, and only then its key goes on.

use std::sync::{Arc, Mutex};

use keylane::error::{Failure, ReceiptError};
use keylane::{Context, Dispatcher, Retry};
use keylane_testkit::scenario::{
    MS, Producer, SECOND, dispatcher, on_both, paused, scripted, within,
};
use keylane_testkit::{Act, Event, Evidence, Gate, History, Outcome, Script};
use tokio::time::Instant;

use crate::support::boxed;

#[test]
fn the_future_is_dropped_before_its_key_goes_on() {
    paused().block_on(async {
        let history = History::new();
        let script = Script::new(&history).message(1, Act::never());
        let orders = dispatcher()
            .attempt_timeout(SECOND)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let began = Instant::now();
        let receipt = producer.submit(1).await;
        producer.send(1).await;
        let told = receipt.await.unwrap_err();
        assert_eq!(told, ReceiptError::Failed(Failure::TimedOut(SECOND)));
        assert!(began.elapsed() >= SECOND);
        let events: Vec<_> = history
            .records()
            .iter()
            .filter(|record| !matches!(record.event, Event::Sent { .. }))
            .map(|record| record.event)
            .collect();
        let expected = [
            Event::Start {
                id: 1,
                attempt: 1,
                token: 0,
            },
            Event::End {
                id: 1,
                attempt: 1,
                outcome: Outcome::Dropped,
            },
            Event::Start {
                id: 2,
                attempt: 1,
                token: 0,
            },
            Event::End {
                id: 2,
                attempt: 1,
                outcome: Outcome::Ok,
            },
        ];
        assert_eq!(events, expected);
        assert_eq!(producer.dispatcher.stats().timeouts, 1);
        producer.finish(Evidence::new().discarded([1])).await;
    });
}

/// The time counts for each attempt by itself, from its start and not from the acceptance.
#[test]
fn waiting_does_not_count_and_each_attempt_has_its_own_time() {
    paused().block_on(async {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history)
            .message(1, Act::ok().sleeps(900 * MS))
            .message(2, Act::ok().sleeps(900 * MS))
            .attempt(3, 1, Act::never())
            .attempt(3, 2, Act::error().sleeps(900 * MS))
            .attempt(3, 3, Act::ok().sleeps(900 * MS));
        drop(gate);
        let orders = dispatcher()
            .attempt_timeout(SECOND)
            .retry(Retry::fixed(5 * SECOND))
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        // The second has waited in its lane for nearly its whole time before it starts.
        producer.send_all(1, 3).await;
        let stats = producer.dispatcher.clone();
        let report = producer.finish(Evidence::new()).await;
        assert_eq!(report.done, 3);
        assert_eq!(stats.stats().timeouts, 1);
    });
}

#[test]
fn the_context_knows_the_deadline() {
    paused().block_on(async {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let handler = move |ctx: Context<u64>, n: u64| {
            log.lock().unwrap().push((ctx.deadline(), ctx.time_left()));
            async move { Ok(n) }
        };
        let orders = Dispatcher::builder(|n: &u64| *n)
            .attempt_timeout(3 * SECOND)
            .spawn(boxed(handler.clone()))
            .unwrap();
        orders.send(1).await.unwrap();
        let started = Instant::now();
        orders.drain().await;
        let without = Dispatcher::builder(|n: &u64| *n)
            .spawn(boxed(handler))
            .unwrap();
        without.send(1).await.unwrap();
        without.drain().await;
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0], (Some(started + 3 * SECOND), Some(3 * SECOND)));
        assert_eq!(seen[1], (None, None));
    });
}

/// One in ten is too slow, by far: those and no others are dropped.
#[test]
fn one_in_ten_times_out() {
    on_both(|| async {
        let history = History::new();
        let script = Script::new(&history).choose(|cue| match cue.id % 10 {
            0 => Act::never().yields((cue.id % 3) as u32),
            n => Act::ok().yields((n % 3) as u32),
        });
        let orders = dispatcher()
            .concurrency(64)
            .attempt_timeout(200 * MS)
            .spawn(scripted(script))
            .unwrap();
        let producer = Producer::new(&history, orders);
        let mut receipts = Vec::new();
        for n in 0..500 {
            receipts.push(producer.submit(Some(n % 60).filter(|key| *key > 0)).await);
        }
        let mut late = Vec::new();
        for (n, receipt) in receipts.into_iter().enumerate() {
            match within(receipt).await {
                Ok(_) => {}
                Err(ReceiptError::Failed(Failure::TimedOut(_))) => late.push(n as u64 + 1),
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(late, (1..=50).map(|n| n * 10).collect::<Vec<_>>());
        assert_eq!(producer.dispatcher.stats().timeouts, 50);
        producer.finish(Evidence::new().discarded(late)).await;
    });
}
