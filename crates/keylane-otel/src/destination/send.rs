//! The spans of what is sent.

use std::fmt;
use std::future::Future;

use opentelemetry::Context;
use opentelemetry::trace::{SpanBuilder, SpanKind, TraceContextExt as _, Tracer as _};

use super::attempt::whole;
use super::{Destination, attribute};
use crate::carrier::CarrierMut;
use crate::creation::inject;
use crate::names::BATCH_SIZE;
use crate::span::{End, InSpan, OpenSpan};

const OPERATION: &str = "send";

impl Destination {
    /// Sends a message in a span, and writes the context of the span into its headers.
    ///
    /// `write` gets the message and does what it takes to send it. The span is a child of the
    /// current one, for example of the attempt whose handler sends. It ends when `write` has
    /// returned.
    ///
    /// # Errors
    ///
    /// Returns the error of `write`.
    ///
    /// # Cancel safety
    ///
    /// As the future of `write`. If this is dropped, the span ends with the outcome `dropped`.
    ///
    /// # Examples
    ///
    /// ```
    /// use keylane::source::RawMessage;
    /// use keylane_otel::Destination;
    ///
    /// # async fn write(_: &RawMessage) -> Result<(), std::io::Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let invoices = Destination::kafka("invoices");
    /// let invoice = RawMessage::new("42 EUR").key("user-7");
    /// // With a producer: `producer.send("invoices", &invoice).await`.
    /// invoices.send(invoice, |invoice| async move { write(&invoice).await }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send<M, T, E, Fut>(
        &self,
        mut message: M,
        write: impl FnOnce(M) -> Fut,
    ) -> Result<T, E>
    where
        M: CarrierMut,
        E: fmt::Debug,
        Fut: Future<Output = Result<T, E>>,
    {
        let Some(context) = self.sending(None) else {
            return write(message).await;
        };
        inject(&context, &mut message);
        self.in_sending(context, async { write(message).await })
            .await
    }

    /// Sends several messages in one span, and writes its context into the headers of each. The
    /// rest is as in [`send`](Self::send).
    ///
    /// # Errors
    ///
    /// Returns the error of `write`.
    pub async fn send_all<M, T, E, Fut>(
        &self,
        mut messages: Vec<M>,
        write: impl FnOnce(Vec<M>) -> Fut,
    ) -> Result<T, E>
    where
        M: CarrierMut,
        E: fmt::Debug,
        Fut: Future<Output = Result<T, E>>,
    {
        let Some(context) = self.sending(Some(messages.len())) else {
            return write(messages).await;
        };
        for message in &mut messages {
            inject(&context, message);
        }
        self.in_sending(context, async { write(messages).await })
            .await
    }

    /// Starts a span. `None` if there are no spans.
    fn sending(&self, count: Option<usize>) -> Option<Context> {
        let tracer = self.tracer.as_ref()?;
        let mut attributes = self.attributes(OPERATION, self.name.clone());
        attributes.extend(count.map(|count| attribute(BATCH_SIZE, whole(count))));
        let span = SpanBuilder::from_name(format!("{OPERATION} {}", self.name))
            .with_kind(SpanKind::Producer)
            .with_attributes(attributes);
        let current = Context::current();
        let span = tracer.build_with_context(span, &current);
        Some(current.with_span(span))
    }

    async fn in_sending<T, E: fmt::Debug>(
        &self,
        context: Context,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let span = OpenSpan::new(context, || false);
        let (answer, span) = InSpan::new(span, call).await;
        span.end(match &answer {
            Ok(_) => End::Done,
            Err(error) => self.failed(error),
        });
        answer
    }
}
