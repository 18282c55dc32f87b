//! A handler of batches with a span for each batch.

use std::fmt;

use keylane::Context;
use keylane::batch::{Answers, BatchAnswer, BatchHandler};

use super::Destination;
use super::attempt::whole;
use super::handler::is_late;
use crate::names::FAILED;
use crate::origin::HasOrigin;
use crate::span::{End, InSpan, OpenSpan};

/// A handler of batches with a span for each batch: see [`Destination::process_batches`].
pub struct TracedBatches<H> {
    destination: Destination,
    handler: H,
}

/// The answer of a [`TracedBatches`]: that of its handler, one for each message.
#[derive(Debug)]
pub struct TracedAnswers<O, E>(Answers<O, E>);

impl Destination {
    /// Makes a span for each batch that this handler gets, with a link to each span that sent one
    /// of the messages. The rest is as in [`process`](Self::process); there is no baggage, because
    /// each message may have another one.
    ///
    /// If some messages of the batch fail, the outcome is `failed`, and the span has their number.
    pub fn process_batches<H>(&self, handler: H) -> TracedBatches<H> {
        TracedBatches {
            destination: self.clone(),
            handler,
        }
    }

    fn end_of<O, E: fmt::Debug>(&self, answers: &Answers<O, E>) -> (End, usize) {
        match answers {
            Err(error) => (self.failed(error), 0),
            Ok(answers) => {
                let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
                match errors.next() {
                    None => (End::Done, 0),
                    Some(first) => (self.failed(first), 1 + errors.count()),
                }
            }
        }
    }
}

impl<K, M, A, H> BatchHandler<K, M, (A,)> for TracedBatches<H>
where
    K: Send + Sync,
    M: HasOrigin + Send + Sync,
    A: 'static,
    H: BatchHandler<K, M, A>,
{
    type Answer =
        TracedAnswers<<H::Answer as BatchAnswer>::Output, <H::Answer as BatchAnswer>::Error>;

    async fn handle(&self, context: &Context<K>, messages: Vec<M>) -> Self::Answer {
        let count = messages.len();
        let origins = messages.iter().map(HasOrigin::origin);
        let span = self.destination.batch_attempt(origins, context.attempt());
        let Some(span) = span else {
            let answer = self.handler.handle(context, messages).await;
            return TracedAnswers(answer.into_answers(count));
        };
        let span = OpenSpan::new(span, || is_late(context));
        let call = async {
            self.handler
                .handle(context, messages)
                .await
                .into_answers(count)
        };
        let (answers, span) = InSpan::new(span, call).await;
        let (end, failed) = self.destination.end_of(&answers);
        if failed > 0 {
            span.set(FAILED, whole(failed));
        }
        span.end(end);
        TracedAnswers(answers)
    }
}

impl<O, E> BatchAnswer for TracedAnswers<O, E>
where
    O: Send + 'static,
    E: fmt::Debug + Send + Sync + 'static,
{
    type Output = O;
    type Error = E;

    fn into_answers(self, _: usize) -> Answers<O, E> {
        self.0
    }
}

impl<H> fmt::Debug for TracedBatches<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracedBatches")
            .field("destination", &self.destination)
            .finish_non_exhaustive()
    }
}
