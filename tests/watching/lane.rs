//! One lane: its messages, its failed attempts, its pause; and how long messages wait.

use std::time::Duration;

use futures::FutureExt;
use keylane::source::{Features, RawMessage};
use keylane::{Context, Dispatcher, OnExhausted, Retry};
use keylane_testkit::Gate;
use keylane_testkit::reference::ReferenceServer;
use keylane_testkit::scenario::{MS, SECOND, until};

use crate::support::boxed;

#[tokio::test(start_paused = true)]
async fn the_messages_of_a_lane_are_listed_in_order_up_to_a_number() {
    let gate = Gate::new();
    let waits = {
        let gate = gate.clone();
        boxed(move |n| gate.pass().map(move |()| Ok(n)))
    };
    let orders = Dispatcher::builder(|n: &u64| n % 10).spawn(waits).unwrap();
    for n in [3, 13, 23, 33, 4] {
        orders.send(n).await.unwrap();
        tokio::time::sleep(SECOND).await;
    }
    let views = orders.lane(&3).messages(3).await;
    assert_eq!(views.len(), 3);
    assert!(views[0].is_head && !views[1].is_head);
    assert!(views.is_sorted_by(|a, b| a.id < b.id && a.age + 10 * MS >= b.age + SECOND));
    assert!(views.iter().all(|view| view.origin.is_none()));
    assert_eq!(orders.lane(&3).messages(10).await.len(), 4);
    assert!(orders.lane(&7).messages(10).await.is_empty());
    orders.abort().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_of_a_source_says_where_it_comes_from() {
    let server = ReferenceServer::new(Features::new().survives_restart());
    server.publish((1..=3).map(|id| RawMessage::new(vec![id]).key("ann")));
    let handler = |_: Context<_>, _: RawMessage| async { Err::<(), _>("declined") };
    let orders = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
        .on_exhausted(OnExhausted::Halt)
        .spawn(handler)
        .unwrap();
    let intake = orders.consume(server.source()).unwrap();
    until(|| orders.stats().halted == 1).await;
    let lane = orders.lane(&"ann".into());
    let views = lane.messages(10).await;
    let origins: Vec<_> = views
        .iter()
        .map(|view| view.origin.as_ref().unwrap())
        .collect();
    assert_eq!(origins.len(), 3);
    assert_eq!(origins[0].source, "reference");
    let positions: Vec<_> = origins.iter().map(|origin| &*origin.position).collect();
    assert!(
        positions.is_sorted() && positions[0] != positions[2],
        "{positions:?}"
    );
    // A source whose driver is gone is not waited for.
    lane.pause();
    drop(intake);
    orders.abort().await;
    assert!(lane.messages(10).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_last_failed_attempts_of_a_key_are_remembered() {
    let orders = Dispatcher::builder(|n: &u64| n % 10)
        .retry(Retry::fixed(SECOND).max_attempts(3))
        .on_exhausted(OnExhausted::Halt)
        .spawn(|n: u64| async move { if n == 3 { Err("declined") } else { Ok(()) } })
        .unwrap();
    orders.send(3).await.unwrap();
    orders.send(4).await.unwrap();
    until(|| orders.stats().halted == 1).await;
    let failed = orders.lane(&3).failed(2);
    let attempts: Vec<_> = failed.iter().map(|it| it.attempt).collect();
    assert_eq!(attempts, [3, 2], "the last one first");
    assert!(failed[0].why.contains("declined"));
    assert!(failed[0].at - failed[1].at >= SECOND);
    assert_eq!(orders.lane(&4).failed(2), []);
}

#[tokio::test(start_paused = true)]
async fn paused_keys_are_found_however_few_messages_they_have() {
    let orders = Dispatcher::builder(|n: &u64| *n)
        .spawn(|_: u64| async { Ok::<(), String>(()) })
        .unwrap();
    for key in [1, 2, 3] {
        orders.lane(&key).pause();
    }
    orders.send(2).await.unwrap();
    assert_eq!(orders.paused(10).await, [3, 2, 1]);
    assert_eq!(orders.paused(1).await, [3]);
    orders.lane(&3).resume().unwrap();
    assert_eq!(orders.paused(10).await, [2, 1]);
    orders.lane(&3).pause();
    assert_eq!(orders.paused(10).await, [3, 2, 1]);
    orders.abort().await;
}

#[tokio::test(start_paused = true)]
async fn failing_keys_are_found_the_oldest_first() {
    let orders = Dispatcher::builder(|n: &u64| *n)
        .retry(Retry::fixed(60 * SECOND).max_attempts(2))
        .on_exhausted(OnExhausted::Halt)
        .spawn(|n: u64| async move { if n < 4 { Err("declined") } else { Ok(()) } })
        .unwrap();
    for key in [1, 2, 3] {
        orders.send(key).await.unwrap();
        until(|| orders.stats().backing_off as u64 == key).await;
        tokio::time::sleep(SECOND).await;
    }
    orders.send(9).await.unwrap();
    until(|| orders.stats().done == 1).await;
    assert_eq!(orders.failing(10).await, [1, 2, 3]);
    assert_eq!(orders.failing(2).await, [1, 2]);
    // A halted key has failed, and does not any more.
    orders.lane(&1).retry_now().unwrap();
    until(|| orders.stats().halted == 1).await;
    assert_eq!(orders.failing(10).await, [2, 3]);
    orders.abort().await;
}

#[tokio::test(start_paused = true)]
async fn waits_and_attempts_are_measured_while_it_is_asked_for() {
    let orders = Dispatcher::builder(|n: &u64| n % 2)
        .spawn(|_: u64| async {
            tokio::time::sleep(200 * MS).await;
            Ok::<(), String>(())
        })
        .unwrap();
    let mut measuring = orders.measure();
    measuring.take();
    for n in 0..10 {
        orders.send(n).await.unwrap();
    }
    until(|| orders.stats().done == 10).await;
    let mut times = measuring.take();
    assert_eq!((times.wait.count(), times.attempt.count()), (10, 10));
    let near = |time: Option<Duration>, ms: u64| {
        let (time, wanted) = (time.unwrap(), ms * MS.as_millis() as u64);
        let wanted = Duration::from_millis(wanted);
        assert!(time.abs_diff(wanted) <= wanted / 16 + 2 * MS, "{time:?}");
    };
    near(times.attempt.quantile(0.5), 200);
    near(times.wait.quantile(0.5), 400);
    near(times.wait.quantile(1.0), 800);
    assert_eq!(measuring.take().wait.count(), 0, "since the last call");
    drop(measuring);
    orders.submit(1).await.unwrap().await.unwrap();
    let mut again = orders.measure();
    assert_eq!(again.take().attempt.count(), 0, "nothing was measured");
    times.add(&times.clone());
    assert_eq!(times.wait.count(), 20);
}
