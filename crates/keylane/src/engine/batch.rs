//! Several messages of one key in one handler.

use std::future::{Future, poll_fn};
use std::pin::pin;

use futures::FutureExt;

use super::Engine;
use super::apart::Freed;
use super::gate::Opening;
use super::hand::{Hand, Owed, Post};
use super::message::{Parked, Queued, Standing, Ticket, Turn};
use super::seat::Seat;
use super::settle::{Outcome, Tally};
use super::shutdown::HandedBack;
use crate::batch::{BatchAnswer, BatchHandler};
use crate::clock;
use crate::error::Failure;
use crate::handler::Context;
use crate::lanes::Role;
use crate::rt::{self, Arc};
use crate::types::{Spec, Types};
use crate::unwind::{caught, cloned};

/// As [`run`](super::run), with a handler that takes batches.
///
/// Beside it and not in it: what is alive across the await of a handler is memory for each handler in
/// flight, and plain handlers should not pay for batches.
#[allow(clippy::manual_async_fn)]
pub(crate) fn run_batches<T: Spec, H, A>(
    mut seat: Seat<T>,
    handler: Arc<H>,
) -> impl Future<Output = ()> + Send
where
    H: BatchHandler<T::Key, T::Message, A>,
    H::Answer: BatchAnswer<Output = T::Output, Error = T::Error>,
{
    async move {
        let engine = Arc::clone(seat.engine());
        let mut context = Context::new(engine.shutdown.cancel.clone());
        loop {
            match seat.role() {
                Role::Gone => return,
                Role::Idle if !seat.summoned().await => return,
                Role::Idle | Role::Starting | Role::Poller | Role::Holder => {}
            }
            if seat.is_tired() | seat.is_in_the_way() {
                seat.flush();
                rt::step_aside().await;
            }
            let Some(mut turn) = seat.take() else {
                continue;
            };
            loop {
                let (head, is_letter) = turn.sorted();
                let next = if is_letter {
                    let post = Post::take(&engine, head);
                    let accepted = super::runner::deliver(&engine, &post, &mut seat).await;
                    seat.after_letter(post.done(), accepted)
                } else {
                    let (answer, owed, mates) = {
                        let (messages, mates, mut hand) = take(&engine, &mut context, head);
                        let count = mates.len() + 1;
                        let mut slot = pin!(None);
                        hand.call(messages, slot.as_mut(), |context, messages| {
                            handler
                                .handle(context, messages)
                                .map(move |answer| answer.into_answers(count))
                        });
                        let answer = poll_fn(|cx| hand.poll(slot.as_mut(), &mut seat, cx)).await;
                        engine.drop_future(|| slot.set(None));
                        let owed = hand.done(&answer);
                        (answer, owed, mates.done())
                    };
                    seat.after_batch(&mut context, owed, mates, answer)
                };
                match seat.proceed(next) {
                    Some(next) => turn = next,
                    None => break,
                }
            }
        }
    }
}

/// Takes a turn in hand: the messages for the handler, and the guards of what is owed for them.
#[allow(clippy::type_complexity, reason = "the messages and their two guards")]
fn take<'a, T: Spec>(
    engine: &'a Arc<Engine<T>>,
    context: &'a mut Context<T::Key>,
    mut turn: Turn<T>,
) -> (
    Result<Vec<T::Message>, Failure<T::Error>>,
    Mates<'a, T>,
    Hand<'a, T>,
) {
    let parked = turn.ticket.debt.take_mates();
    let mut mates = Mates {
        engine,
        key: turn.key.as_ref().and_then(cloned),
        owed: Vec::with_capacity(parked.len()),
    };
    let mut messages = Vec::with_capacity(parked.len() + 1);
    let mut failed = None;
    let (head, hand) = Hand::take(engine, context, turn);
    let kept = parked.into_iter().map(|Parked { message, ticket }| {
        let (message, kept) = engine.keep(message);
        mates.owed.push(Mate { ticket, kept });
        message
    });
    for message in std::iter::once(head).chain(kept) {
        match message {
            Ok(message) => messages.push(message),
            Err(failure) => failed = Some(failure),
        }
    }
    let messages = match failed {
        None => Ok(messages),
        Some(failure) => {
            engine.drop_quietly(messages);
            Err(failure)
        }
    };
    (messages, mates, hand)
}

/// What is owed for a message that is in a handler behind the first one of its batch.
pub(super) struct Mate<T: Types> {
    ticket: Ticket<T>,
    kept: Option<T::Message>,
}

/// Settles the messages behind the first one if their handler is dropped in the middle.
struct Mates<'a, T: Spec> {
    engine: &'a Arc<Engine<T>>,
    key: Option<T::Key>,
    owed: Vec<Mate<T>>,
}

impl<T: Spec> Mates<'_, T> {
    fn len(&self) -> usize {
        self.owed.len()
    }

    /// The handler has answered.
    fn done(mut self) -> Vec<Mate<T>> {
        std::mem::take(&mut self.owed)
    }
}

impl<T: Spec> Drop for Mates<'_, T> {
    fn drop(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        self.engine.shutdown.advance(super::Stage::Aborting);
        let mut tally = Tally::default();
        for Mate { ticket, kept } in std::mem::take(&mut self.owed) {
            self.engine.shutdown.interrupted();
            let back = HandedBack {
                key: self.key.as_ref().and_then(cloned),
                message: kept,
                attempts: 1,
                interrupted: true,
            };
            self.engine.hand_back(&mut tally, back, ticket);
        }
        self.engine.flush(&mut tally);
    }
}

/// A message of a batch that has failed.
struct Failed<T: Types> {
    ticket: Ticket<T>,
    kept: Option<T::Message>,
    /// `None`: it failed with the batch, whose failure is another one's.
    failure: Option<Failure<T::Error>>,
}

impl<T: Spec> Engine<T> {
    /// Settles a batch as far as it succeeded. Returns the turn of the next message if the first one
    /// of the lane has settled.
    pub(super) fn after_batch(
        self: &Arc<Self>,
        tally: &mut Tally,
        context: &mut Context<T::Key>,
        owed: Owed<T>,
        mates: Vec<Mate<T>>,
        answer: Result<Vec<Result<T::Output, T::Error>>, Box<Failure<T::Error>>>,
    ) -> Option<Queued<T>> {
        let Owed { hash, ticket, kept } = owed;
        let had_mates = !mates.is_empty();
        let head = std::iter::once(Mate { ticket, kept });
        let crew = head.chain(mates);
        let mut failed = Vec::new();
        match answer {
            Err(failure) => {
                let mut failure = Some(failure);
                failed.extend(crew.map(|Mate { ticket, kept }| Failed {
                    ticket,
                    kept,
                    failure: failure.take().map(|failure| *failure),
                }));
            }
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for Mate { ticket, kept } in crew {
                    let failure = match answers.next() {
                        Some(Ok(answer)) => {
                            self.drop_quietly(kept);
                            self.settle(tally, ticket, Outcome::Done(answer));
                            continue;
                        }
                        Some(Err(error)) => Failure::Error(error),
                        None => Failure::NoAnswer,
                    };
                    failed.push(Failed {
                        ticket,
                        kept,
                        failure: Some(failure),
                    });
                }
                // Answers for messages that are not there are the user's to drop.
                self.drop_quietly(answers);
            }
        }
        let mut failed = failed.into_iter();
        match failed.next() {
            None => {
                if had_mates {
                    self.put_back(tally, context.key.as_ref(), hash, Vec::new());
                }
                self.advance(context.key.take(), hash)
            }
            Some(first) => {
                let failure = first.failure.unwrap_or(Failure::NoAnswer);
                let why = self.why(&failure);
                if had_mates {
                    self.put_failed_back(tally, context.key.as_ref(), hash, &why, failed);
                }
                let owed = Owed {
                    hash,
                    ticket: first.ticket,
                    kept: first.kept,
                };
                self.failed(tally, context, owed, failure)
            }
        }
    }

    /// Those that failed behind another one wait behind it again, where they are kept.
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
            mut ticket,
            kept,
            failure,
        } in failed
        {
            let failure = failure.unwrap_or_else(|| Failure::WithBatch(why.to_owned()));
            match (kept, key) {
                (Some(message), Some(_)) => {
                    self.drop_quietly(failure);
                    let load = ticket.debt.load_mut();
                    load.earlier = load.earlier.saturating_add(1);
                    back.push(Parked { message, ticket });
                }
                (_, _) => {
                    self.probe.counters.failures.add(1);
                    self.settle(tally, ticket, Outcome::Discarded(failure));
                }
            }
        }
        self.put_back(tally, key, hash, back);
    }

    /// A batch is over: these of it go back into their lane, in front of all others.
    fn put_back(&self, tally: &mut Tally, key: Option<&T::Key>, hash: u64, back: Vec<Parked<T>>) {
        let Some(key) = key else { return };
        let now = clock::now();
        let mut back = Some(back);
        let mut freed = Freed::default();
        let mut opening = Opening::Nothing;
        let put = caught(|| {
            self.lanes.with(hash, key, |lane| {
                lane.extra_mut().mates = 0;
                // What is behind may be apart already, and then this will not be looked at.
                let newest = lane.parked_mut().next_back();
                let is_apart = newest
                    .is_some_and(|newest| newest.ticket.debt.load().standing == Standing::Apart);
                for mut parked in back.take().into_iter().flatten().rev() {
                    if is_apart {
                        self.set_apart(&mut parked.ticket, &mut freed);
                    }
                    let expires_at = parked
                        .ticket
                        .debt
                        .terms()
                        .and_then(|terms| terms.expires_at);
                    #[cfg(keylane_mutant = "failed-at-tail")]
                    lane.append(parked, self.lanes.spares());
                    #[cfg(not(keylane_mutant = "failed-at-tail"))]
                    lane.put_back(parked, self.lanes.spares());
                    if let Some(at) = expires_at {
                        self.watch_until(lane, key, hash, at, now);
                    }
                }
                opening = self.open_gate(lane, lane.depth());
            })
        });
        opening.carry_out();
        self.free(&freed);
        if put.is_err() {
            self.count_lost();
        }
        for Parked { message, ticket } in back.into_iter().flatten() {
            self.hand_back(tally, HandedBack::idle(cloned(key), message, 0), ticket);
        }
    }
}
