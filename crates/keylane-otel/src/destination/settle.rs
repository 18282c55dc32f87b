//! A source with a span for each report of what has settled.

use std::fmt;
use std::sync::Arc;

use keylane::source::{
    Deliveries, Describer, Features, Generation, Received, Settlement, Source, SourceError,
    SourceLetter, StartGuard,
};
use opentelemetry::Context;
use opentelemetry::trace::{SpanBuilder, SpanKind, TraceContextExt as _, Tracer as _};

use super::attempt::whole;
use super::{Destination, attribute};
use crate::names::{ACKED, BATCH_SIZE};
use crate::span::{End, InSpan, OpenSpan};

const OPERATION: &str = "settle";

/// A source with a span for each report of what has settled: see [`Destination::settle`].
pub struct TracedSource<S> {
    destination: Destination,
    source: S,
}

impl Destination {
    /// Makes a span each time a source is told which messages have settled. Such spans are many,
    /// and say little while all is well, so there are none unless you call this.
    ///
    /// A report has the messages that have settled since the one before, and is a trace of its own.
    /// Its span ends when the source has taken it; the source may tell its server later.
    pub fn settle<S: Source>(&self, source: S) -> TracedSource<S> {
        TracedSource {
            destination: self.clone(),
            source,
        }
    }

    fn settling<P>(&self, settled: &[Settlement<P>]) -> Option<Context> {
        let tracer = self.tracer.as_ref()?;
        let acked = settled.iter().filter(|settled| settled.outcome.is_ack());
        let mut attributes = self.attributes_of_consumer(OPERATION, self.name.clone());
        attributes.push(attribute(BATCH_SIZE, whole(settled.len())));
        attributes.push(attribute(ACKED, whole(acked.count())));
        let span = SpanBuilder::from_name(format!("{OPERATION} {}", self.name))
            .with_kind(SpanKind::Client)
            .with_attributes(attributes);
        let current = Context::current();
        let span = tracer.build_with_context(span, &current);
        Some(current.with_span(span))
    }
}

impl<S: Source> Source for TracedSource<S> {
    type Message = S::Message;
    type Position = S::Position;

    fn name(&self) -> String {
        self.source.name()
    }

    fn describer(&self) -> Describer<S::Position> {
        self.source.describer()
    }

    fn features(&self) -> Features {
        self.source.features()
    }

    fn validate(&self) -> Result<(), SourceError> {
        self.source.validate()
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.source.open().await
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<S::Message, S::Position>,
    ) -> Result<Received<S::Position>, SourceError> {
        self.source.receive(into).await
    }

    async fn settle(&mut self, settled: &[Settlement<S::Position>]) -> Result<(), SourceError> {
        let Some(context) = self.destination.settling(settled) else {
            return self.source.settle(settled).await;
        };
        let span = OpenSpan::new(context, || false);
        let (answer, span) = InSpan::new(span, self.source.settle(settled)).await;
        span.end(match &answer {
            Ok(()) => End::Done,
            Err(error) => self.destination.failed(error),
        });
        answer
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.source.confirm().await
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        self.source.release(generations).await
    }

    async fn extend(&mut self, held: &[S::Position]) -> Result<(), SourceError> {
        self.source.extend(held).await
    }

    async fn reread(
        &mut self,
        positions: &[S::Position],
        into: &mut Deliveries<S::Message, S::Position>,
    ) -> Result<(), SourceError> {
        self.source.reread(positions, into).await
    }

    async fn dead_letter(&mut self, letter: SourceLetter<S::Position>) -> Result<(), SourceError> {
        self.source.dead_letter(letter).await
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<S::Position>>> {
        self.source.start_guard()
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        self.source.close().await
    }
}

impl<S> fmt::Debug for TracedSource<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracedSource")
            .field("destination", &self.destination)
            .finish_non_exhaustive()
    }
}
