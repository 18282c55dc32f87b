//! A dead letter in flight: its sink runs.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

use keylane_rt::Arc;
use keylane_rt::clock::{self, Alarm};
use keylane_rt::unwind::{caught, cloned};

use super::head::Head;
use crate::engine::message::{Envelope, GivenUp, Job, Queued, Work, why};
use crate::engine::settlement::{Outcome, Tally};
use crate::engine::sources::NotKept;
use crate::engine::{Engine, HandedBack};
use crate::letter::{DeadLetter, OnExhausted, Sink};
use crate::types::{Spec, Types};

/// Why a source cannot keep a letter.
const GONE: &str = "the source of the message is no longer consumed";

/// The pause before a source is asked again for a letter that is on its way.
const PENDING: Duration = Duration::from_millis(100);

/// A dead letter, and its obligation.
type LetterAndEnvelope<T> = (
    DeadLetter<<T as Types>::Key, <T as Types>::Message, <T as Types>::Error>,
    Envelope<T>,
);

/// Why a dead letter was not delivered.
pub(super) enum Undelivered {
    /// The sink has said so.
    Refused(String),
    /// The lease of its key was lost.
    Unleased,
}

/// A dead letter that is being delivered.
///
/// If it is dropped before the sink has answered, the message is handed back.
pub(super) struct LetterInFlight<T: Spec> {
    engine: Arc<Engine<T>>,
    hash: u64,
    refusals: u32,
    /// Whether a lane waits for this delivery.
    in_lane: bool,
    /// Boxed: a runner has one only while it delivers.
    letter: Option<Box<LetterAndEnvelope<T>>>,
}

impl<T: Spec> LetterInFlight<T> {
    /// Takes a job that delivers a dead letter.
    #[inline]
    pub(super) fn take(engine: &Arc<Engine<T>>, job: Job<T>) -> Self {
        let Job {
            key,
            hash,
            message,
            envelope,
            work: Work::Letter(given_up),
        } = job
        else {
            unreachable!("the runner delivers letters only")
        };
        let GivenUp {
            attempts,
            failure,
            refusals,
            beside,
        } = *given_up;
        let in_lane = key.is_some();
        let letter = DeadLetter::new(key.or(beside), message, attempts, failure);
        Self {
            engine: Arc::clone(engine),
            hash,
            refusals,
            in_lane,
            // A message is given up alone.
            letter: Some(Box::new((letter, envelope.into_running()))),
        }
    }

    /// The sink's answer.
    pub(super) async fn deliver(&self) -> Result<(), String> {
        let letter = self
            .letter
            .as_ref()
            .expect("a letter is delivered before it is done");
        if self.is_kept_by_source() {
            // Boxed: its size would be part of each runner, which is memory per handler in flight.
            return Box::pin(self.engine.dead_letter_at_source(letter)).await;
        }
        let sink = self.engine.sink().ok_or("there is no dead-letter sink")?;
        sink.accept(&letter.0)
            .await
            .map_err(|error| error.to_string())
    }

    /// Whether the source of the message keeps the letter.
    fn is_kept_by_source(&self) -> bool {
        let at_source = matches!(self.engine.settings.on_exhausted, OnExhausted::AtSource);
        let obligation = self.letter.as_ref().map(|letter| &letter.1.obligation);
        at_source && obligation.is_some_and(|obligation| obligation.source().is_some())
    }

    /// Whether its source has taken the message back, and the time to end is over.
    pub(super) fn is_revoked(&self, cx: &task::Context<'_>) -> bool {
        let obligation = self.letter.as_ref().map(|letter| &letter.1.obligation);
        self.engine.sources.has_any()
            && obligation.is_some_and(|obligation| self.engine.sources.watch(obligation, cx))
    }

    /// Whether the lease of its key is lost. If not, this task is woken then.
    pub(super) fn has_lost_lease(&self, cx: &mut task::Context<'_>) -> bool {
        let Head { key, hash, .. } = self.head();
        self.engine.starts.has_lost_lease(key, hash, cx)
    }

    /// The key and hash of the message.
    pub(super) fn head(&self) -> Head<'_, T::Key> {
        let letter = self.letter.as_deref();
        let in_lane = letter.filter(|_| self.in_lane);
        Head {
            key: in_lane.and_then(|(letter, _)| letter.key.as_ref()),
            hash: self.hash,
            attempt: letter.map_or(0, |(letter, _)| letter.attempts),
            accepted_at: letter.map_or(0, |(_, envelope)| envelope.accepted_at),
        }
    }

    /// Handles the sink's answer: settles an accepted letter, or schedules another delivery.
    /// Returns the next job of the key.
    pub(super) fn finish(
        mut self,
        tally: &mut Tally,
        accepted: Result<(), Undelivered>,
    ) -> Option<Queued<T>> {
        let letter = self.letter.take().expect("a letter is done once");
        let (
            DeadLetter {
                key,
                message,
                attempts,
                failure,
                ..
            },
            envelope,
        ) = *letter;
        let (engine, hash) = (&self.engine, self.hash);
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
        match accepted {
            Ok(()) => {
                engine.probe.drop_quietly(message);
                engine.probe.notify_dead_lettered(key.as_ref(), &given_up);
                let outcome = Outcome::DeadLettered(given_up.failure);
                engine.settlement.settle(tally, envelope, outcome);
                engine.decisions.advance(key, hash)
            }
            Err(why) => {
                let job = Job {
                    key,
                    hash,
                    message,
                    envelope: envelope.into(),
                    work: Work::Letter(given_up),
                };
                match why {
                    Undelivered::Refused(error) => engine.failures.refused(tally, job, error),
                    Undelivered::Unleased => engine.decisions.wait_for_lease(tally, job),
                }
            }
        }
    }
}

impl<T: Spec> Drop for LetterInFlight<T> {
    fn drop(&mut self) {
        if let Some(letter) = self.letter.take() {
            let (
                DeadLetter {
                    key,
                    message,
                    attempts,
                    failure,
                    ..
                },
                envelope,
            ) = *letter;
            self.engine.probe.drop_quietly(failure);
            let lane = key.as_ref().filter(|_| self.in_lane).and_then(cloned);
            let back = HandedBack {
                key,
                message: Some(message),
                attempts,
                interrupted: true,
            };
            self.engine
                .interrupted(lane, self.hash, envelope, back, attempts);
        }
    }
}

/// Polls the delivery of a dead letter once. A panic of the sink counts as a refusal.
pub(super) fn poll_delivery<F>(
    future: Pin<&mut Option<F>>,
    cx: &mut task::Context<'_>,
) -> Poll<Result<(), String>>
where
    F: Future<Output = Result<(), String>>,
{
    let future = future
        .as_pin_mut()
        .expect("a delivery is polled until it is ready");
    caught(|| future.poll(cx)).unwrap_or_else(|text| Poll::Ready(Err(text)))
}

impl<T: Spec> Engine<T> {
    /// Gives the dead letter of a message to its source, and the letters of the messages that were
    /// merged into it to theirs.
    async fn dead_letter_at_source(&self, letter: &LetterAndEnvelope<T>) -> Result<(), String> {
        let (letter, envelope) = letter;
        let (text, cause) = (why(&letter.failure), letter.failure.cause());
        let ask = |at| {
            let text = text.to_string();
            let sources = &self.sources;
            sources.dead_letter(at, letter.attempts, cause, text)
        };
        let mut answers = Vec::new();
        envelope.obligation.any_source(&mut |at| {
            answers.push((at, ask(at)));
            false
        });
        for (at, mut answer) in answers {
            loop {
                match answer.ok_or(GONE)?.await {
                    Ok(Ok(())) => break,
                    Ok(Err(NotKept::Failed(why))) => return Err(why),
                    Ok(Err(NotKept::Pending)) => {}
                    Err(_) => return Err(GONE.to_owned()),
                }
                let mut alarm = Alarm::new(clock::now() + PENDING);
                poll_fn(|cx| alarm.poll(cx)).await;
                answer = ask(at);
            }
        }
        Ok(())
    }

    /// The dead-letter sink, if letters go to one.
    pub(in crate::engine) fn sink(&self) -> Option<&Sink<T::Key, T::Message, T::Error>> {
        match &self.settings.on_exhausted {
            OnExhausted::DeadLetter(sink) => Some(sink),
            OnExhausted::Discard | OnExhausted::Halt | OnExhausted::AtSource => {
                self.settings.sink.as_ref()
            }
        }
    }
}
