//! Batches: several messages of one key in one handler.

use std::future::Future;
use std::marker::PhantomData;

use futures::FutureExt;
use keylane_rt::Arc;
use keylane_rt::unwind::cloned;

use super::in_flight::InFlight;
use super::invoke::Invoke;
use super::kept::{Kept, KeptIfSet, KeptMessage};
use crate::batch::{BatchAnswer, BatchHandler};
use crate::engine::message::{BatchMember, Envelope, Obligation, Parked, Queued, UnsettledBatch};
use crate::engine::settlement::Tally;
use crate::engine::{Engine, HandedBack, Stage};
use crate::error::Failure;
use crate::handler::Context;
use crate::types::{Spec, Types};

/// A handler of batches. `A` distinguishes the kinds of closures.
pub(crate) struct Batches<H, A> {
    handler: H,
    kinds: PhantomData<fn() -> A>,
}

impl<H, A> Batches<H, A> {
    pub(crate) fn new(handler: H) -> Self {
        Self {
            handler,
            kinds: PhantomData,
        }
    }
}

/// What the engine keeps of a batch while its handler runs.
pub(crate) struct KeptBatch<T: Types> {
    first: Option<T::Message>,
    /// All messages but the first one.
    members: Vec<BatchMember<T>>,
}

impl<T: Spec> Kept<T> for KeptBatch<T> {
    fn members(&self) -> impl Iterator<Item = &Obligation<T>> {
        self.members
            .iter()
            .map(|member| &member.envelope.obligation)
    }

    fn take(&mut self) -> Option<T::Message> {
        self.first.take()
    }

    fn interrupt(&mut self, engine: &Arc<Engine<T>>, key: Option<&T::Key>) {
        if self.members.is_empty() {
            return;
        }
        engine.shutdown.enter(Stage::Aborting);
        let mut tally = Tally::default();
        for BatchMember { envelope, kept } in std::mem::take(&mut self.members) {
            engine.shutdown.count_interrupted();
            let back = HandedBack {
                key: key.and_then(cloned),
                message: kept,
                attempts: 1,
                interrupted: true,
            };
            engine
                .settlement
                .hand_back_after(&mut tally, back, 0, envelope);
        }
        engine.settlement.flush(&mut tally);
    }
}

/// A batch whose handler has returned.
pub(crate) enum FinishedBatch<T: Types> {
    /// It was one message, which has settled. Its lane has this hash.
    Settled(u64),
    Unsettled(Box<UnsettledBatch<T>>),
}

impl<T, H, A> Invoke<T> for Batches<H, A>
where
    T: Spec,
    H: BatchHandler<T::Key, T::Message, A>,
    H::Answer: BatchAnswer<Output = T::Output, Error = T::Error>,
    A: 'static,
{
    type Input = Vec<T::Message>;
    type Kept = KeptBatch<T>;
    type Answer = Vec<Result<T::Output, T::Error>>;
    type Error = T::Error;
    type Finished = FinishedBatch<T>;

    fn keep(
        engine: &Engine<T>,
        envelope: &mut Envelope<T>,
        message: T::Message,
    ) -> (Result<Self::Input, Failure<T::Error>>, KeptBatch<T>) {
        let behind = envelope.obligation.take_members();
        let mut messages = Vec::with_capacity(behind.len() + 1);
        let mut members = Vec::with_capacity(behind.len());
        let mut failed = None;
        let mut add = |input: Result<_, _>| match input {
            Ok(message) => messages.push(message),
            Err(failure) => failed = Some(failure),
        };
        let (input, KeptIfSet(first)) = KeptIfSet::keep(engine, message);
        add(input);
        for Parked { message, envelope } in behind {
            let (input, KeptIfSet(kept)) = KeptIfSet::keep(engine, message);
            members.push(BatchMember { envelope, kept });
            add(input);
        }
        let messages = match failed {
            None => Ok(messages),
            Some(failure) => {
                engine.probe.drop_quietly(messages);
                Err(failure)
            }
        };
        (messages, KeptBatch { first, members })
    }

    fn call(
        &self,
        context: &Context<T::Key>,
        messages: Vec<T::Message>,
    ) -> impl Future<Output = Result<Self::Answer, T::Error>> + Send {
        let count = messages.len();
        self.handler
            .handle(context, messages)
            .map(move |answer| answer.into_answers(count))
    }

    fn finish(
        engine: &Arc<Engine<T>>,
        tally: &mut Tally,
        in_flight: &mut InFlight<'_, T, KeptBatch<T>>,
        mut answer: Result<Self::Answer, Box<Failure<T::Error>>>,
    ) -> FinishedBatch<T> {
        in_flight.answered(engine, &answer);
        let members = std::mem::take(&mut in_flight.kept().members);
        if members.is_empty()
            && let Ok(answers) = &mut answer
            && let Some(answer) = sole_success(answers)
        {
            in_flight.settle(engine, tally, answer);
            return FinishedBatch::Settled(in_flight.hash());
        }
        FinishedBatch::Unsettled(Box::new(UnsettledBatch {
            first: in_flight.take_unsettled(),
            members,
            answer,
        }))
    }

    fn advance(
        engine: &Arc<Engine<T>>,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        finished: FinishedBatch<T>,
    ) -> Option<Queued<T>> {
        match finished {
            FinishedBatch::Settled(hash) => engine.decisions.advance(context.key.take(), hash),
            FinishedBatch::Unsettled(batch) => engine.failures.after_batch(tally, context, *batch),
        }
    }
}

/// The answer to a batch of one message, if it is a success.
fn sole_success<O, E>(answers: &mut Vec<Result<O, E>>) -> Option<O> {
    match answers.pop() {
        Some(Ok(answer)) if answers.is_empty() => Some(answer),
        last => {
            answers.extend(last);
            None
        }
    }
}
