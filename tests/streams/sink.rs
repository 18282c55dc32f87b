//! The dispatcher as the end of a stream.

use std::future::IntoFuture;
use std::pin::Pin;

use futures::{FutureExt, Sink, SinkExt, StreamExt, stream};
use keylane::DispatcherSink;
use keylane::error::SendError;
use keylane::{Builder, Dispatcher, Overflow};
use keylane_testkit::Gate;

type Orders = Dispatcher<u64, u64, u64, String>;
type Orderly = DispatcherSink<u64, u64, u64, String>;

/// Messages wait at the gate; the key is the last digit.
fn orders(gate: &Gate, capacity: usize) -> Orders {
    build(gate, capacity, usize::MAX >> 4, Overflow::Wait)
}

fn build(gate: &Gate, capacity: usize, lane_capacity: usize, overflow: Overflow) -> Orders {
    let gate = gate.clone();
    let builder: Builder<_, _, String, _> = Dispatcher::builder(|order: &u64| {
        assert!(*order != 666, "no such order");
        order % 10
    });
    builder
        .capacity(capacity)
        .lane_capacity(lane_capacity.min(capacity), overflow)
        .spawn(move |order: u64| {
            let pass = gate.pass();
            async move {
                pass.await;
                Ok(order)
            }
        })
        .unwrap()
}

/// Until the router has seen what was sent.
async fn seen(orders: &Orders, key: u64, depth: usize) {
    while orders.inspect(&key).is_none_or(|lane| lane.depth < depth) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stream_is_forwarded_in_order_and_the_dispatcher_stays_open() {
    let gate = Gate::new();
    gate.open();
    let orders = orders(&gate, 8);
    let all = stream::iter(0..100).map(Ok);
    all.forward(orders.sink()).await.unwrap();
    orders.send(100).await.unwrap();
    assert_eq!(orders.drain().await.done, 101);
}

#[tokio::test]
async fn flushed_is_accepted_and_not_handled() {
    let gate = Gate::new();
    let orders = orders(&gate, 8);
    orders.sink().send(1).await.unwrap();
    seen(&orders, 1, 1).await;
    assert_eq!(orders.stats().done, 0);
    gate.open();
    assert_eq!(orders.drain().await.done, 1);
}

#[tokio::test]
async fn it_waits_for_room_and_holds_one_message() {
    let gate = Gate::new();
    let orders = orders(&gate, 1);
    let mut sink = orders.sink();
    sink.send(1).await.unwrap();
    sink.feed(2).await.unwrap();
    // One is held, and there is no room: not flushed, and not ready for another one.
    assert!(sink.flush().now_or_never().is_none());
    assert!(sink.feed(3).now_or_never().is_none());
    assert!(format!("{sink:?}").contains("Sending"));
    gate.open();
    sink.flush().await.unwrap();
    sink.send(3).await.unwrap();
    assert_eq!(orders.drain().await.done, 3);
}

#[tokio::test]
async fn it_waits_at_a_full_lane() {
    let gate = Gate::new();
    let orders = build(&gate, 100, 1, Overflow::Wait);
    let mut sink = orders.sink();
    sink.send(1).await.unwrap();
    seen(&orders, 1, 1).await;
    sink.feed(11).await.unwrap();
    assert!(sink.flush().now_or_never().is_none());
    // Its key is full; another sink gets another key in.
    orders.sink().send(2).await.unwrap();
    gate.open();
    sink.close().await.unwrap();
    assert_eq!(orders.drain().await.done, 3);
}

#[tokio::test]
async fn a_refused_message_comes_back_and_the_sink_goes_on() {
    let gate = Gate::new();
    let orders = build(&gate, 100, 1, Overflow::Reject);
    let mut sink = orders.sink();
    sink.send(1).await.unwrap();
    seen(&orders, 1, 1).await;
    assert_eq!(sink.send(11).await, Err(SendError::LaneFull(11)));
    sink.send(2).await.unwrap();
    gate.open();
    assert_eq!(orders.drain().await.done, 2);
    assert_eq!(sink.send(3).await, Err(SendError::Closed(3)));
}

#[tokio::test]
async fn a_dispatcher_that_closes_gives_the_held_message_back() {
    let gate = Gate::new();
    let orders = orders(&gate, 1);
    let mut sink = orders.sink();
    sink.send(1).await.unwrap();
    sink.feed(2).await.unwrap();
    assert!(sink.flush().now_or_never().is_none());
    gate.arrivals(1).await;
    gate.open();
    let (report, flushed) = tokio::join!(biased; orders.close().into_future(), sink.flush());
    assert_eq!(flushed, Err(SendError::Closed(2)));
    assert_eq!((report.accepted, report.done), (1, 1));
}

#[tokio::test]
async fn a_closed_sink_takes_no_more_and_closes_no_other() {
    let gate = Gate::new();
    gate.open();
    let orders = orders(&gate, 8);
    let (mut sink, mut other) = (orders.sink(), orders.sink());
    sink.feed(1).await.unwrap();
    sink.close().await.unwrap();
    sink.close().await.unwrap();
    assert_eq!(sink.send(2).await, Err(SendError::Closed(2)));
    other.send(3).await.unwrap();
    assert!(!orders.is_closed());
    assert_eq!(orders.drain().await.done, 2);
}

#[tokio::test]
async fn closing_waits_for_the_message_that_is_held() {
    let gate = Gate::new();
    let orders = orders(&gate, 1);
    let mut sink = orders.sink();
    sink.send(1).await.unwrap();
    sink.feed(2).await.unwrap();
    assert!(sink.close().now_or_never().is_none());
    gate.open();
    sink.close().await.unwrap();
    assert_eq!(orders.drain().await.done, 2);
}

#[tokio::test]
async fn a_dropped_sink_drops_the_held_message_alone() {
    let gate = Gate::new();
    let orders = orders(&gate, 1);
    let mut sink = orders.sink();
    sink.send(1).await.unwrap();
    sink.feed(2).await.unwrap();
    assert!(sink.flush().now_or_never().is_none());
    drop(sink);
    gate.open();
    orders.sink().send(3).await.unwrap();
    let report = orders.drain().await;
    assert_eq!((report.accepted, report.done), (2, 2));
}

#[tokio::test]
async fn the_task_that_asked_last_is_woken() {
    let gate = Gate::new();
    let orders = orders(&gate, 1);
    let mut sink = orders.sink();
    sink.send(1).await.unwrap();
    sink.feed(2).await.unwrap();
    assert!(sink.flush().now_or_never().is_none());
    // In another task from here on, and only there.
    let other = tokio::spawn(async move {
        sink.flush().await.unwrap();
        sink.feed(3).await.unwrap();
        sink
    });
    tokio::task::yield_now().await;
    gate.open();
    let mut sink = other.await.unwrap();
    sink.close().await.unwrap();
    assert_eq!(orders.drain().await.done, 3);
}

#[tokio::test]
async fn after_a_panic_of_the_key_the_sink_goes_on() {
    let gate = Gate::new();
    gate.open();
    let orders = orders(&gate, 8);
    let mut sink = orders.sink();
    let thrown = std::panic::AssertUnwindSafe(sink.send(666)).catch_unwind();
    assert!(thrown.await.is_err());
    sink.send(1).await.unwrap();
    assert_eq!(orders.drain().await.done, 1);
}

#[tokio::test]
#[should_panic(expected = "`start_send` must wait until `poll_ready` is ready")]
async fn a_message_that_does_not_wait() {
    let orders = orders(&Gate::new(), 8);
    let mut sink: Orderly = orders.sink();
    for order in 0..2 {
        Pin::new(&mut sink).start_send(order).unwrap();
    }
}

#[tokio::test]
async fn an_unused_sink_is_ready_and_flushed() {
    let orders = orders(&Gate::new(), 8);
    let mut sink: Orderly = orders.sink();
    let ready = std::future::poll_fn(|cx| Pin::new(&mut sink).poll_ready(cx));
    assert_eq!(ready.now_or_never(), Some(Ok(())));
    sink.flush().await.unwrap();
    sink.close().await.unwrap();
}
