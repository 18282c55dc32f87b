//! Spans that an exporter in memory has seen.

#![allow(
    dead_code,
    reason = "two programs of tests share it, and neither uses all of it"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keylane::source::RawMessage;
use keylane_otel::Destination;
use opentelemetry::Value;
use opentelemetry::trace::{SpanContext, SpanKind, Status, TracerProvider as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    InMemorySpanExporter, Sampler, SdkTracer, SdkTracerProvider, Span, SpanData, SpanProcessor,
};

/// A sender that the tests know.
pub(crate) const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A key that no span may have.
pub(crate) const KEY: &str = "user-4711";

/// The spans of a test.
pub(crate) struct Spans {
    exporter: InMemorySpanExporter,
    provider: SdkTracerProvider,
    started: Arc<AtomicUsize>,
}

impl Spans {
    pub(crate) fn new() -> Self {
        Self::sampled(Sampler::AlwaysOn)
    }

    pub(crate) fn sampled(sampler: Sampler) -> Self {
        let exporter = InMemorySpanExporter::default();
        let started = Arc::new(AtomicUsize::new(0));
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler)
            .with_span_processor(Started(Arc::clone(&started)))
            .with_simple_exporter(exporter.clone())
            .build();
        Self {
            exporter,
            provider,
            started,
        }
    }

    pub(crate) fn tracer(&self) -> SdkTracer {
        self.provider.tracer("test")
    }

    /// A topic of Kafka whose spans these are.
    pub(crate) fn topic(&self, name: &'static str) -> Destination {
        Destination::kafka(name).tracer(self.tracer())
    }

    /// How many spans have started, ended or not.
    pub(crate) fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    /// The spans that have ended, in this order.
    pub(crate) fn ended(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().expect("spans")
    }

    /// The spans that have ended, in the order in which they began. A message may be handled before
    /// its sender knows that it was sent.
    pub(crate) fn begun(&self) -> Vec<SpanData> {
        let mut spans = self.ended();
        spans.sort_by_key(|span| span.start_time);
        spans
    }

    /// The only span that has ended.
    pub(crate) fn only(&self) -> SpanData {
        let mut ended = self.ended();
        assert_eq!(ended.len(), 1, "{ended:?}");
        ended.remove(0)
    }
}

/// Counts the spans that start.
#[derive(Debug)]
struct Started(Arc<AtomicUsize>);

impl SpanProcessor for Started {
    fn on_start(&self, _: &mut Span, _: &opentelemetry::Context) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn on_end(&self, _: SpanData) {}

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Returns an attribute as text.
pub(crate) fn get(span: &SpanData, name: &str) -> Option<String> {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key.as_str() == name)?;
    Some(match &found.value {
        Value::String(text) => text.as_str().to_owned(),
        other => other.to_string(),
    })
}

pub(crate) fn outcome(span: &SpanData) -> String {
    get(span, keylane_otel::names::OUTCOME).unwrap_or_default()
}

pub(crate) fn is_error(span: &SpanData) -> bool {
    matches!(span.status, Status::Error { .. })
}

/// The spans that this one is linked to.
pub(crate) fn links(span: &SpanData) -> Vec<SpanContext> {
    let links = span.links.iter();
    links.map(|link| link.span_context.clone()).collect()
}

/// A message that the known sender has sent.
pub(crate) fn sent(payload: &'static str) -> RawMessage {
    let mut message = RawMessage::new(payload).key(KEY);
    let header = |name: &str, value: &'static str| (name.to_owned(), Some(value.into()));
    message.headers.push(header("traceparent", PARENT));
    message.headers.push(header("tracestate", "rojo=1"));
    message.headers.push(header("baggage", "tenant=acme"));
    message.id = Some("orders/3@1200".into());
    message
}

/// A handler that fails until the flag is set.
pub(crate) fn fails_until(
    is_well: &Arc<AtomicBool>,
) -> impl Fn(RawMessage) -> std::future::Ready<Result<(), &'static str>> + Send + Sync + 'static {
    let is_well = Arc::clone(is_well);
    move |_| {
        std::future::ready(match is_well.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err("not yet"),
        })
    }
}

/// The message was sent, failed, was redriven and succeeded: each attempt is a child of the span
/// that sent it.
pub(crate) fn assert_kept(begun: &[SpanData]) {
    let outcomes: Vec<_> = begun.iter().map(outcome).collect();
    assert_eq!(outcomes, ["done", "failed", "done"]);
    let send = &begun[0].span_context;
    assert_eq!(begun[0].span_kind, SpanKind::Producer);
    for attempt in &begun[1..] {
        assert_eq!(attempt.span_context.trace_id(), send.trace_id());
        assert_eq!(attempt.parent_span_id, send.span_id());
    }
}
