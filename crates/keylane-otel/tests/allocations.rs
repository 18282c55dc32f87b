//! What a span costs, in allocations for each message.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use keylane::source::RawMessage;
use keylane::{Dispatcher, Overflow};
use keylane_otel::{Destination, Relation};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const MESSAGES: u64 = 2_000;

/// Allocations in `MESSAGES` attempts, of messages that are there already.
fn of(destination: Option<&Destination>) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let handler = |_: RawMessage| async { Ok::<(), std::io::Error>(()) };
        let by_key = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone());
        let capacity = usize::try_from(2 * MESSAGES).unwrap();
        let by_key = by_key
            .capacity(capacity)
            .lane_capacity(capacity, Overflow::Reject);
        let dispatcher = match destination {
            None => by_key.spawn(handler).unwrap(),
            Some(destination) => by_key.spawn(destination.process(handler)).unwrap(),
        };
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let messages = (0..MESSAGES).map(|number| {
            let mut message = RawMessage::new("250").key("user-7");
            message.id = Some(format!("orders/3@{number}").into());
            let header = ("traceparent".to_owned(), Some(traceparent.into()));
            message.headers.push(header);
            message
        });
        let messages: Vec<_> = messages.collect();
        let before = dhat::HeapStats::get().total_blocks;
        for message in messages {
            dispatcher.send(message).await.unwrap();
        }
        assert_eq!(dispatcher.drain().await.done, MESSAGES);
        dhat::HeapStats::get().total_blocks - before
    })
}

/// One test, because allocations of another one would be counted too.
#[test]
fn a_destination_that_is_off_costs_nothing_and_one_that_is_not_sampled_little() {
    let _profiler = dhat::Profiler::builder()
        .testing()
        .trim_backtraces(Some(4))
        .build();
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)))
        .build();
    let orders = Destination::kafka("orders")
        .relation(Relation::Parent)
        .tracer(provider.tracer("test"));
    // What is allocated once.
    of(None);
    of(Some(&orders));
    let (bare, off) = (of(None), of(Some(&orders.clone().off())));
    let not_sampled = of(Some(&orders));
    let each = |all: u64| all.saturating_sub(bare) as f64 / MESSAGES as f64;
    println!(
        "off: {:.2}, not sampled: {:.2}",
        each(off),
        each(not_sampled)
    );
    assert!(each(off) < 0.05, "{off} allocations, without it {bare}");
    assert!(each(not_sampled) < 14.0, "{}", each(not_sampled));
}
