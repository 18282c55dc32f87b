//! How a job of the ready queue is given to a handler.

use std::future::Future;

use super::in_flight::InFlight;
use super::kept::Kept;
use crate::engine::Engine;
use crate::engine::message::{Envelope, Queued};
use crate::engine::outcome::Tally;
use crate::error::Failure;
use crate::handler::Context;
use crate::rt::Arc;
use crate::types::Spec;

/// A handler as runners see it: of single messages, or of batches.
///
/// One type for each, so that the future of a runner carries what its own kind of handler needs and
/// nothing else.
pub(crate) trait Work<T: Spec>: Send + Sync + 'static {
    /// What the handler is called with.
    type Input: Send;
    /// What stays with the engine while it runs.
    type Kept: Kept<T>;
    /// What it answers.
    type Answer: Send;
    /// Why it can fail.
    type Error: Into<Failure<T::Error>>;
    /// What is left to do once the context is free for the next job.
    type Finished: Send;

    /// The input for the handler, and what is kept of it.
    #[allow(clippy::type_complexity, reason = "the input, and what is kept of it")]
    fn keep(
        engine: &Engine<T>,
        envelope: &mut Envelope<T>,
        message: T::Message,
    ) -> (Result<Self::Input, Failure<T::Error>>, Self::Kept);

    /// Calls the handler.
    fn call(
        &self,
        context: &Context<T::Key>,
        input: Self::Input,
    ) -> impl Future<Output = Result<Self::Answer, Self::Error>> + Send;

    /// The handler has answered: settles what has succeeded and can be settled in its place.
    fn finish(
        engine: &Arc<Engine<T>>,
        tally: &mut Tally,
        in_flight: &mut InFlight<'_, T, Self::Kept>,
        answer: Result<Self::Answer, Box<Failure<T::Error>>>,
    ) -> Self::Finished;

    /// Moves the lane on, tries again or gives up. Returns the next job of the key.
    fn advance(
        engine: &Arc<Engine<T>>,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        finished: Self::Finished,
    ) -> Option<Queued<T>>;
}
