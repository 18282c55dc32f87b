//! Messages that are out of the engine's hands: with a handler, or with a dead-letter sink.
//!
//! Both guards settle their message if they are dropped in the middle, which happens when the
//! task is aborted or its runtime goes away. They are declared before the future they guard, so
//! the future is dropped first and the key moves on only after it.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};

use super::Engine;
use super::attempt::{self, Watched};
use super::message::{GivenUp, Ticket, Turn, Work};
use super::seat::Seat;
use super::settle::Tally;
use crate::clock::Alarm;
use crate::error::Failure;
use crate::handler::Context;
use crate::letter::{DeadLetter, Exhausted, Sink};
use crate::observe::PollMark;
use crate::rt::Arc;
use crate::types::{Spec, Types};
use crate::unwind::{caught, cloned};

/// A message in its handler.
pub(super) struct Hand<'a, T: Spec> {
    engine: &'a Arc<Engine<T>>,
    context: &'a Context<T::Key>,
    hash: u64,
    ticket: Option<Ticket<T>>,
    kept: Option<T::Message>,
    watched: Watched,
    alarm: Option<Alarm>,
    /// Why there is no future to poll. Boxed: it is rare, and there is a hand for each handler.
    failed: Option<Box<Failure<T::Error>>>,
}

/// How an attempt went.
pub(super) enum Concluded<T: Types> {
    /// The message of the lane with this hash has settled.
    Settled(u64),
    Failed(Failure<T::Error>, Owed<T>),
}

/// What is owed for a message whose handler has answered.
pub(super) struct Owed<T: Types> {
    pub(super) hash: u64,
    pub(super) ticket: Ticket<T>,
    pub(super) kept: Option<T::Message>,
}

impl<'a, T: Spec> Hand<'a, T> {
    /// Takes a turn in hand: the message for its handler, and the guard of what is owed for it.
    #[inline]
    pub(super) fn take(
        engine: &'a Arc<Engine<T>>,
        context: &'a mut Context<T::Key>,
        turn: Turn<T>,
    ) -> (Result<T::Message, Failure<T::Error>>, Self) {
        let attempt = turn.attempt();
        let Turn {
            key,
            hash,
            message,
            ticket,
            work: _,
        } = turn;
        context.key = key;
        context.version = ticket.debt.terms().map_or(0, |terms| terms.version);
        let watched = engine.start(context, hash, attempt, ticket.parked_at);
        let (message, kept) = engine.keep(message);
        let hand = Self {
            engine,
            context,
            hash,
            ticket: Some(ticket),
            kept,
            watched,
            alarm: None,
            failed: None,
        };
        (message, hand)
    }

    /// Calls the handler, and puts its future where it stays.
    #[inline]
    pub(super) fn call<F, I>(
        &mut self,
        message: Result<I, Failure<T::Error>>,
        mut slot: Pin<&mut Option<F>>,
        handle: impl FnOnce(&'a Context<T::Key>, I) -> F,
    ) {
        let context = self.context;
        let called = message.and_then(|message| {
            // A closure may block before it has made its future.
            let _mark = PollMark::start(self.engine.id(), self.hash);
            caught(|| handle(context, message)).map_err(Failure::Panicked)
        });
        match called {
            Ok(future) => slot.set(Some(future)),
            Err(failure) => self.failed = Some(Box::new(failure)),
        }
    }

    /// Polls the handler, and then its deadline. The first `Pending` makes the runner a holder.
    #[inline]
    pub(super) fn poll<F, A, X>(
        &mut self,
        slot: Pin<&mut Option<F>>,
        seat: &mut Seat<T>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Result<A, Box<Failure<T::Error>>>>
    where
        F: Future<Output = Result<A, X>>,
        X: Into<Failure<T::Error>>,
    {
        if let Some(failure) = self.failed.take() {
            return Poll::Ready(Err(failure));
        }
        let polled = attempt::poll(slot, cx, &self.watched, self.engine.id(), self.hash);
        if polled.is_ready() {
            return polled;
        }
        let context = self.context;
        let parked_at = self.ticket.as_ref().map_or(0, |ticket| ticket.parked_at);
        seat.hold(context.key.as_ref(), self.hash, context.attempt, parked_at);
        let limit = self.engine.settings.attempt_timeout;
        attempt::poll_deadline(context, &mut self.alarm, limit, cx)
            .map(|failure| Err(Box::new(failure)))
    }

    /// The key moves on while the handler's future is still there.
    #[cfg(keylane_mutant = "drop-after-next")]
    pub(super) fn move_on(&self) {
        let next = self.engine.advance(self.context.key.clone(), self.hash);
        next.map_or((), |next| self.engine.enqueue(next));
    }

    /// The handler has answered. With success the message settles here: to move a ticket would cost
    /// more than to settle it where it is.
    #[inline]
    pub(super) fn conclude(
        mut self,
        seat: &mut Seat<T>,
        answer: Result<T::Output, Box<Failure<T::Error>>>,
    ) -> Concluded<T> {
        self.unwatch(&answer);
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => return Concluded::Failed(*failure, self.owed()),
        };
        if let Some(ticket) = &mut self.ticket {
            seat.settle_done(self.context.key.as_ref(), self.hash, ticket, answer);
        }
        self.ticket = None;
        if std::mem::needs_drop::<T::Message>()
            && let Some(kept) = self.kept.take()
        {
            self.engine.drop_quietly(kept);
        }
        Concluded::Settled(self.hash)
    }

    /// The handler of a batch has answered: what is owed goes on to be settled.
    pub(super) fn done<A>(mut self, answer: &Result<A, Box<Failure<T::Error>>>) -> Owed<T> {
        self.unwatch(answer);
        self.owed()
    }

    fn owed(mut self) -> Owed<T> {
        Owed {
            hash: self.hash,
            ticket: self.ticket.take().expect("a hand is done once"),
            kept: self.kept.take(),
        }
    }

    #[inline]
    fn unwatch<A>(&mut self, answer: &Result<A, Box<Failure<T::Error>>>) {
        self.watched.end(self.engine);
        if let Some(started) = self.watched.started.take() {
            self.engine.measure(&started, answer);
        }
    }
}

impl<T: Spec> Drop for Hand<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let Context { key, attempt, .. } = self.context;
            // This may run while a panic unwinds.
            let key = key.as_ref().and_then(cloned);
            let back = super::HandedBack {
                key: key.as_ref().and_then(cloned),
                message: self.kept.take(),
                attempts: *attempt,
                interrupted: true,
            };
            self.engine.interrupted(key, self.hash, ticket, back);
        }
    }
}

/// A letter as it leaves for the sink, and as it comes back.
pub(super) struct Letter<T: Types> {
    pub(super) key: Option<T::Key>,
    pub(super) hash: u64,
    pub(super) message: T::Message,
    pub(super) ticket: Ticket<T>,
    pub(super) given_up: Box<GivenUp<T>>,
}

/// A letter, and what is owed for it.
type Sealed<T> = (
    DeadLetter<<T as Types>::Key, <T as Types>::Message, <T as Types>::Error>,
    Ticket<T>,
);

/// A message on its way to the dead-letter sink.
pub(super) struct Post<'a, T: Spec> {
    engine: &'a Arc<Engine<T>>,
    hash: u64,
    refusals: u32,
    /// Whether a lane waits for the letter.
    in_lane: bool,
    /// Boxed: a runner carries one only while it delivers.
    letter: Option<Box<Sealed<T>>>,
}

impl<'a, T: Spec> Post<'a, T> {
    /// Takes the turn of a letter.
    #[inline]
    pub(super) fn take(engine: &'a Arc<Engine<T>>, turn: Turn<T>) -> Self {
        let Turn {
            key,
            hash,
            message,
            ticket,
            work: Work::Letter(given_up),
        } = turn
        else {
            unreachable!("the runner posts letters only")
        };
        let GivenUp {
            attempts,
            failure,
            refusals,
            beside,
        } = *given_up;
        let in_lane = key.is_some();
        let letter = DeadLetter {
            key: key.or(beside),
            message,
            attempts,
            failure,
        };
        Self {
            engine,
            hash,
            refusals,
            in_lane,
            letter: Some(Box::new((letter, ticket))),
        }
    }

    /// The sink's verdict on the letter.
    pub(super) async fn deliver(&self) -> Result<(), String> {
        let letter = self
            .letter
            .as_ref()
            .expect("a letter is delivered before it is done");
        let sink = self.engine.sink().ok_or("there is no dead-letter sink")?;
        sink.accept(&letter.0)
            .await
            .map_err(|error| error.to_string())
    }

    /// The key of the lane that waits for the letter.
    pub(super) fn key(&self) -> Option<&T::Key> {
        let letter = self.letter.as_ref().filter(|_| self.in_lane)?;
        letter.0.key.as_ref()
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn parked_at(&self) -> u64 {
        self.letter.as_ref().map_or(0, |letter| letter.1.parked_at)
    }

    pub(super) fn attempts(&self) -> u32 {
        self.letter.as_ref().map_or(0, |letter| letter.0.attempts)
    }

    /// The sink has answered: the letter goes on to be settled, or to wait.
    #[inline]
    pub(super) fn done(mut self) -> Letter<T> {
        let letter = self.letter.take().expect("a post is done once");
        let (
            DeadLetter {
                key,
                message,
                attempts,
                failure,
            },
            ticket,
        ) = *letter;
        let (key, beside) = if self.in_lane {
            (key, None)
        } else {
            (None, key)
        };
        let given_up = Box::new(GivenUp {
            attempts,
            failure,
            refusals: self.refusals,
            beside,
        });
        Letter {
            key,
            hash: self.hash,
            message,
            ticket,
            given_up,
        }
    }
}

impl<T: Spec> Drop for Post<'_, T> {
    fn drop(&mut self) {
        if let Some(letter) = self.letter.take() {
            let (
                DeadLetter {
                    key,
                    message,
                    attempts,
                    failure,
                },
                ticket,
            ) = *letter;
            self.engine.drop_quietly(failure);
            let lane = key.as_ref().filter(|_| self.in_lane).and_then(cloned);
            let back = super::HandedBack {
                key,
                message: Some(message),
                attempts,
                interrupted: true,
            };
            self.engine.interrupted(lane, self.hash, ticket, back);
        }
    }
}

impl<T: Spec> Engine<T> {
    /// Where dead letters go.
    pub(super) fn sink(&self) -> Option<&Sink<T::Key, T::Message, T::Error>> {
        match &self.settings.exhausted {
            Exhausted::DeadLetter(sink) => Some(sink),
            Exhausted::Discard | Exhausted::Halt => self.settings.sink.as_ref(),
        }
    }

    /// A handler or a sink was dropped in the middle: by an abort, or because the runtime goes away,
    /// which is one. The message goes back, and nothing of its key runs after it.
    fn interrupted(
        self: &Arc<Self>,
        lane: Option<T::Key>,
        hash: u64,
        ticket: Ticket<T>,
        back: super::HandedBack<T::Key, T::Message>,
    ) {
        self.shutdown.interrupted();
        self.shutdown.advance(super::Stage::Aborting);
        let mut tally = Tally::default();
        self.hand_back(&mut tally, back, ticket);
        self.release_handing_back(&mut tally, lane, hash);
        self.flush(&mut tally);
    }
}
