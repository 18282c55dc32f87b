//! Single messages: one message in one handler.

use std::future::Future;
use std::marker::PhantomData;

use keylane_rt::Arc;

use super::in_flight::InFlight;
use super::invoke::Invoke;
use super::kept::{KeptIfSet, KeptMessage, NotKept};
use crate::engine::Engine;
use crate::engine::message::{Envelope, Queued, Unsettled};
use crate::engine::settlement::Tally;
use crate::error::Failure;
use crate::handler::{Context, Handler};
use crate::types::{Spec, Types};

/// A handler of single messages. `A` distinguishes the kinds of closures; `K` is what is kept.
pub(crate) struct Single<H, A, K> {
    handler: H,
    kinds: PhantomData<fn() -> (A, K)>,
}

impl<H, A> Single<H, A, NotKept> {
    /// For a dispatcher that keeps no message.
    pub(crate) fn not_kept(handler: H) -> Self {
        Self {
            handler,
            kinds: PhantomData,
        }
    }
}

impl<H, A, M> Single<H, A, KeptIfSet<M>> {
    /// For a dispatcher that may keep messages, as its settings say.
    pub(crate) fn kept_if_set(handler: H) -> Self {
        Self {
            handler,
            kinds: PhantomData,
        }
    }
}

/// The result of an attempt.
pub(crate) enum FinishedAttempt<T: Types> {
    /// The message has settled. Its lane has this hash.
    Settled(u64),
    Failed(Failure<T::Error>, Unsettled<T>),
}

impl<T, H, A, K> Invoke<T> for Single<H, A, K>
where
    T: Spec,
    H: Handler<T::Key, T::Message, A, Output = T::Output, Error: Into<Failure<T::Error>>>,
    A: 'static,
    K: KeptMessage<T> + 'static,
{
    type Input = T::Message;
    type Kept = K;
    type Answer = T::Output;
    type Error = H::Error;
    type Finished = FinishedAttempt<T>;

    #[inline]
    fn keep(
        engine: &Engine<T>,
        _: &mut Envelope<T>,
        message: T::Message,
    ) -> (Result<T::Message, Failure<T::Error>>, K) {
        K::keep(engine, message)
    }

    #[inline]
    fn call(
        &self,
        context: &Context<T::Key>,
        message: T::Message,
    ) -> impl Future<Output = Result<T::Output, H::Error>> + Send {
        self.handler.handle(context, message)
    }

    #[inline]
    fn finish(
        engine: &Arc<Engine<T>>,
        tally: &mut Tally,
        in_flight: &mut InFlight<'_, T, K>,
        answer: Result<T::Output, Box<Failure<T::Error>>>,
    ) -> FinishedAttempt<T> {
        in_flight.answered(engine, &answer);
        match answer {
            Ok(answer) => {
                in_flight.settle(engine, tally, answer);
                FinishedAttempt::Settled(in_flight.hash())
            }
            Err(failure) => FinishedAttempt::Failed(*failure, in_flight.take_unsettled()),
        }
    }

    #[inline]
    fn advance(
        engine: &Arc<Engine<T>>,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        finished: FinishedAttempt<T>,
    ) -> Option<Queued<T>> {
        match finished {
            // What is returned as it is, is not moved.
            FinishedAttempt::Settled(hash) if engine.table.leases.is_none() => {
                engine.decisions.advance(context.key.take(), hash)
            }
            FinishedAttempt::Settled(hash) => {
                let mut next = engine.decisions.advance(context.key.take(), hash);
                engine.starts.hand_lease_on(context, &mut next);
                next
            }
            FinishedAttempt::Failed(failure, unsettled) => {
                engine.failures.failed(tally, context, unsettled, failure)
            }
        }
    }
}
