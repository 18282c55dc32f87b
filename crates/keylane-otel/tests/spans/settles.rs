//! The spans of settlements.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keylane::source::{
    Deliveries, Delivery, Features, RawMessage, Received, Settlement, Source, SourceError,
};
use keylane::{Dispatcher, OnExhausted};
use keylane_otel::names;
use opentelemetry::trace::SpanKind;

use crate::support::{Spans, get, outcome, sent};

/// Hands over some messages, and ends. Counts what it is told of them.
struct Finite {
    left: u64,
    settled: Arc<AtomicUsize>,
}

impl Source for Finite {
    type Message = RawMessage;
    type Position = u64;

    fn features(&self) -> Features {
        Features::new().finite()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, u64>,
    ) -> Result<Received<u64>, SourceError> {
        if self.left == 0 {
            return Ok(Received::End);
        }
        while into.room() > 0 && self.left > 0 {
            into.push(Delivery::new(sent("250"), self.left));
            self.left -= 1;
        }
        Ok(Received::Messages)
    }

    async fn settle(&mut self, settled: &[Settlement<u64>]) -> Result<(), SourceError> {
        self.settled.fetch_add(settled.len(), Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn settlements_have_spans_only_if_that_is_set() {
    for is_set in [false, true] {
        let spans = Spans::new();
        let orders = spans.topic("orders");
        let dispatcher = Dispatcher::key_by_opt(|message: &RawMessage| message.key.clone())
            .on_exhausted(OnExhausted::Halt)
            .spawn(|_: RawMessage| async { Ok::<(), std::io::Error>(()) })
            .unwrap();
        let settled = Arc::new(AtomicUsize::new(0));
        let source = Finite {
            left: 3,
            settled: Arc::clone(&settled),
        };
        let intake = match is_set {
            false => dispatcher.consume(source).unwrap(),
            true => dispatcher.consume(orders.settle(source)).unwrap(),
        };
        let report = intake.ended().await;
        assert_eq!((report.received, report.acked), (3, 3));
        assert_eq!(settled.load(Ordering::SeqCst), 3);
        let ended = spans.ended();
        assert_eq!(!ended.is_empty(), is_set);
        let acked = ended.iter().map(|span| get(span, names::ACKED).unwrap());
        let acked: u64 = acked.map(|acked| acked.parse::<u64>().unwrap()).sum();
        assert_eq!(acked, if is_set { 3 } else { 0 });
        for span in &ended {
            assert_eq!(
                (&*span.name, &span.span_kind),
                ("settle orders", &SpanKind::Client)
            );
            assert_eq!(outcome(span), "done");
        }
    }
}
