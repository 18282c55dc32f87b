//! A handler with a span for each attempt.

use std::any::type_name;
use std::fmt;
use std::time::Duration;

use keylane::{Context, Handler};

use super::Destination;
use crate::origin::HasOrigin;
use crate::span::{End, InSpan, OpenSpan};

/// A handler with a span for each attempt: see [`Destination::process`].
pub struct TracedHandler<H> {
    destination: Destination,
    handler: H,
}

impl Destination {
    /// Makes a span for each attempt of this handler.
    ///
    /// The span begins when the handler is called and ends when it has returned, so a message that
    /// waits in its lane has none. An attempt that panics, or that is dropped (at its deadline, by
    /// `abort`, because its lease or partition is lost), ends its span too. A retry is a span of
    /// its own, with the number of the attempt.
    ///
    /// The context is the current one whenever the handler is polled, before and after each
    /// `.await`: what it sends, and the requests of clients that use OpenTelemetry, continue the
    /// trace. A task that the handler spawns needs the context passed to it:
    /// `tokio::spawn(work.with_current_context())`, with `opentelemetry::trace::FutureExt`.
    ///
    /// The message is a [`RawMessage`](keylane::source::RawMessage), a [`Traced`](crate::Traced)
    /// one, or a type of your own that [`HasOrigin`].
    pub fn process<H>(&self, handler: H) -> TracedHandler<H> {
        TracedHandler {
            destination: self.clone(),
            handler,
        }
    }
}

impl<K, M, A, H> Handler<K, M, (A,)> for TracedHandler<H>
where
    K: Send + Sync,
    M: HasOrigin + Send,
    A: 'static,
    H: Handler<K, M, A>,
{
    type Output = H::Output;
    type Error = H::Error;

    async fn handle(&self, context: &Context<K>, message: M) -> Result<H::Output, H::Error> {
        let destination = &self.destination;
        let Some(span) = destination.attempt(&message, context.attempt()) else {
            return self.handler.handle(context, message).await;
        };
        let span = OpenSpan::new(span, || is_late(context));
        // A closure may panic before it returns its future: it is called in the span.
        let call = async { self.handler.handle(context, message).await };
        let (answer, span) = InSpan::new(span, call).await;
        span.end(match &answer {
            Ok(_) => End::Done,
            Err(error) => destination.failed(error),
        });
        answer
    }
}

impl Destination {
    pub(super) fn failed<E: fmt::Debug>(&self, error: &E) -> End {
        End::Failed(type_name::<E>(), self.text_of(error))
    }
}

/// Whether the deadline of the attempt is over.
pub(super) fn is_late<K>(context: &Context<K>) -> bool {
    context.time_left() == Some(Duration::ZERO)
}

impl<H> fmt::Debug for TracedHandler<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracedHandler")
            .field("destination", &self.destination)
            .finish_non_exhaustive()
    }
}
