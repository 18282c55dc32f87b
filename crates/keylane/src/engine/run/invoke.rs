//! How a runner invokes a handler: with single messages, or with batches.

use std::future::Future;

use keylane_rt::Arc;

use super::in_flight::InFlight;
use super::kept::Kept;
use crate::engine::Engine;
use crate::engine::message::{Envelope, Queued};
use crate::engine::settlement::Tally;
use crate::error::Failure;
use crate::handler::Context;
use crate::types::Spec;

/// A handler as runners see it: of single messages, or of batches.
///
/// Each kind is a type of its own, so that the future of a runner stores only what its own kind
/// needs.
pub(crate) trait Invoke<T: Spec>: Send + Sync + 'static {
    /// The argument of the handler.
    type Input: Send;
    /// What the engine keeps while the handler runs.
    type Kept: Kept<T>;
    /// The handler's output.
    type Answer: Send;
    /// The handler's error.
    type Error: Into<Failure<T::Error>>;
    /// What is left to do once the context is free for the next job.
    type Finished: Send;

    /// Splits the message into the handler's argument and what is kept.
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

    /// The handler has returned: settles in place the messages that succeeded, as far as possible.
    fn finish(
        engine: &Arc<Engine<T>>,
        tally: &mut Tally,
        in_flight: &mut InFlight<'_, T, Self::Kept>,
        answer: Result<Self::Answer, Box<Failure<T::Error>>>,
    ) -> Self::Finished;

    /// Moves the lane on, retries or gives up. Returns what the runner runs next, if anything.
    fn advance(
        engine: &Arc<Engine<T>>,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        finished: Self::Finished,
    ) -> Option<Queued<T>>;
}
