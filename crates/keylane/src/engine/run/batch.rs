//! Batches: several messages of one key in one handler.

use std::future::Future;
use std::marker::PhantomData;

use futures::FutureExt;
use keylane_lanes::Effects;
use keylane_rt::unwind::{caught, cloned};
use keylane_rt::{Arc, clock};

use super::in_flight::InFlight;
use super::invoke::Invoke;
use super::kept::{Kept, KeptIfSet, KeptMessage};
use crate::batch::{BatchAnswer, BatchHandler};
use crate::engine::message::{Envelope, Obligation, Parked, Queued, Unsettled};
use crate::engine::outcome::{Outcome, Tally};
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

/// The obligation of a message that is in a handler behind the first message of its batch.
pub(crate) struct BatchMember<T: Types> {
    envelope: Envelope<T>,
    kept: Option<T::Message>,
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
            engine.hand_back_after(&mut tally, back, 0, envelope);
        }
        engine.flush(&mut tally);
    }
}

/// A batch whose handler has returned.
pub(crate) enum FinishedBatch<T: Types> {
    /// It was one message, which has settled. Its lane has this hash.
    Settled(u64),
    Unsettled(Box<UnsettledBatch<T>>),
}

/// A batch that has not settled.
pub(crate) struct UnsettledBatch<T: Types> {
    first: Unsettled<T>,
    members: Vec<BatchMember<T>>,
    answer: Result<BatchAnswers<T>, Box<Failure<T::Error>>>,
}

/// One answer for each message of a batch.
type BatchAnswers<T> = Vec<Result<<T as Types>::Output, <T as Types>::Error>>;

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
                engine.drop_quietly(messages);
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
            FinishedBatch::Settled(hash) => engine.advance(context.key.take(), hash),
            FinishedBatch::Unsettled(batch) => engine.after_batch(tally, context, *batch),
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

/// A message of a batch that has failed.
struct Failed<T: Types> {
    envelope: Envelope<T>,
    kept: Option<T::Message>,
    /// `None`: it failed because another message of its batch failed.
    failure: Option<Failure<T::Error>>,
}

impl<T: Spec> Engine<T> {
    /// Handles a batch that has ended: settles its successes, and puts back or gives up its
    /// failures. Returns the next job of the key if the first message has settled.
    fn after_batch(
        self: &Arc<Self>,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        batch: UnsettledBatch<T>,
    ) -> Option<Queued<T>> {
        let UnsettledBatch {
            first:
                Unsettled {
                    hash,
                    envelope,
                    kept,
                },
            members,
            answer,
        } = batch;
        let had_members = !members.is_empty();
        if let Err(failure) = &answer
            && let Failure::LeaseLost = **failure
        {
            let unsettled = Unsettled {
                hash,
                envelope,
                kept,
            };
            return self.after_loss(tally, context, unsettled, members);
        }
        let first = std::iter::once(BatchMember { envelope, kept });
        let all = first.chain(members);
        let mut failed = Vec::new();
        match answer {
            Err(failure) => {
                let mut failure = Some(failure);
                failed.extend(all.map(|BatchMember { envelope, kept }| Failed {
                    envelope,
                    kept,
                    failure: failure.take().map(|failure| *failure),
                }));
            }
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for BatchMember { envelope, kept } in all {
                    let failure = match answers.next() {
                        Some(Ok(answer)) => {
                            self.drop_quietly(kept);
                            self.settle(tally, envelope, Outcome::Done(answer));
                            self.flush_some(tally);
                            continue;
                        }
                        Some(Err(error)) => Failure::Error(error),
                        None => Failure::NoAnswer,
                    };
                    failed.push(Failed {
                        envelope,
                        kept,
                        failure: Some(failure),
                    });
                }
                // Answers without a message are dropped here, which runs user code.
                self.drop_quietly(answers);
            }
        }
        let mut failed = failed.into_iter();
        match failed.next() {
            None => {
                if had_members {
                    self.put_back(tally, context.key.as_ref(), hash, Vec::new());
                }
                self.advance(context.key.take(), hash)
            }
            Some(first) => {
                let failure = first.failure.unwrap_or(Failure::NoAnswer);
                let why = self.why(&failure);
                if had_members {
                    self.put_failed_back(tally, context.key.as_ref(), hash, &why, failed);
                }
                let unsettled = Unsettled {
                    hash,
                    envelope: first.envelope,
                    kept: first.kept,
                };
                self.failed(tally, context, unsettled, failure)
            }
        }
    }

    /// The lease of the key was lost while its batch was in flight. Nothing of it counts as tried.
    fn after_loss(
        self: &Arc<Self>,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        first: Unsettled<T>,
        members: Vec<BatchMember<T>>,
    ) -> Option<Queued<T>> {
        if !members.is_empty() {
            let mut back = Vec::with_capacity(members.len());
            for BatchMember { envelope, kept } in members {
                match kept {
                    Some(message) => back.push(Parked { message, envelope }),
                    // Where lanes are leased, messages are kept.
                    None => self.settle(tally, envelope, Outcome::Discarded(Failure::LeaseLost)),
                }
            }
            self.put_back(tally, context.key.as_ref(), first.hash, back);
        }
        self.failed(tally, context, first, Failure::LeaseLost)
    }

    /// Puts the messages that failed behind the first failed one back into the lane, if they are
    /// kept.
    fn put_failed_back(
        &self,
        tally: &mut Tally,
        key: Option<&T::Key>,
        hash: u64,
        why: &str,
        failed: impl Iterator<Item = Failed<T>>,
    ) {
        let mut back = Vec::new();
        for Failed {
            mut envelope,
            kept,
            failure,
        } in failed
        {
            let failure = failure.unwrap_or_else(|| Failure::WithBatch(why.to_owned()));
            match (kept, key) {
                (Some(message), Some(_)) => {
                    self.drop_quietly(failure);
                    let charge = envelope.obligation.charge_mut();
                    charge.earlier = charge.earlier.saturating_add(1);
                    back.push(Parked { message, envelope });
                }
                (_, _) => {
                    self.probe.counters.failures.add(1);
                    self.settle(tally, envelope, Outcome::Discarded(failure));
                }
            }
        }
        self.put_back(tally, key, hash, back);
    }

    /// Ends a batch: parks these messages of it in their lane again, in front of all others.
    pub(in crate::engine) fn put_back(
        &self,
        tally: &mut Tally,
        key: Option<&T::Key>,
        hash: u64,
        back: Vec<Parked<T>>,
    ) {
        let Some(key) = key else { return };
        let now = clock::now();
        let mut back = Some(back);
        let mut effects = Effects::new();
        let ended = caught(|| {
            self.step(key, hash, now, &mut effects, |lane, effects| {
                let back = back.take().unwrap_or_default();
                lane.end_batch(back, &self.rules, self.lanes.spares(), effects);
            })
        });
        match ended {
            Ok(true) => {
                let owner = key.clone();
                let none = self.apply_quiet(tally, owner, hash, &mut effects);
                assert!(none.is_none(), "the head of the batch is still to settle");
            }
            Ok(false) => {}
            Err(_) => self.count_lost_messages(),
        }
        for Parked { message, envelope } in back.into_iter().flatten() {
            self.hand_back(tally, HandedBack::idle(cloned(key), message, 0), envelope);
        }
    }
}
