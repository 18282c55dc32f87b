//! Handlers that follow a script.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::events::{Id, Key, Outcome, Token};
use crate::gate::{Gate, Pass};
use crate::history::History;

/// A script for handlers: it decides what each attempt does, and records the result.
///
/// The most specific instruction applies: for the attempt, else for the message, else for the key,
/// else [`otherwise`](Script::otherwise), which is [`Act::ok`] unless set. Clones share the history
/// and have their own instructions.
///
/// ```
/// use std::time::Duration;
/// use keylane_testkit::{Act, History, Script};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let history = History::new();
/// let script = Script::new(&history)
///     .attempt(7, 1, Act::error())                               // message 7 fails at first
///     .message(8, Act::panic().sleeps(Duration::from_secs(1)))   // message 8 panics, each time
///     .key(3, Act::ok().yields(2));                              // key 3 takes three polls
/// // As a handler: |ctx, message| script.run(key, message.id, ctx.attempt())
/// assert!(script.run(1, 7, 1).await.is_err());
/// assert_eq!(script.run(1, 7, 2).await, Ok(7));
/// assert_eq!(history.position(), 4); // two starts, two ends
/// # }
/// ```
#[derive(Clone)]
pub struct Script {
    history: History,
    token: Token,
    attempts: HashMap<(Id, u32), Act>,
    messages: HashMap<Id, Act>,
    keys: HashMap<Key, Act>,
    otherwise: Arc<dyn Fn(Cue) -> Act + Send + Sync>,
}

impl Script {
    /// Creates a script in which every handler succeeds at once. Records in `history`.
    pub fn new(history: &History) -> Self {
        Self {
            history: history.clone(),
            token: 0,
            attempts: HashMap::new(),
            messages: HashMap::new(),
            keys: HashMap::new(),
            otherwise: Arc::new(|_| Act::ok()),
        }
    }

    /// Sets the token under which starts are recorded; 0 by default.
    pub fn token(mut self, token: Token) -> Self {
        self.token = token;
        self
    }

    /// Sets what one attempt of a message does.
    pub fn attempt(mut self, id: Id, attempt: u32, act: Act) -> Self {
        self.attempts.insert((id, attempt), act);
        self
    }

    /// Sets what each attempt of a message does.
    pub fn message(mut self, id: Id, act: Act) -> Self {
        self.messages.insert(id, act);
        self
    }

    /// Sets what each message of a key does.
    pub fn key(mut self, key: Key, act: Act) -> Self {
        self.keys.insert(key, act);
        self
    }

    /// Sets what all other attempts do.
    pub fn otherwise(self, act: Act) -> Self {
        self.choose(move |_| act.clone())
    }

    /// Sets what all other attempts do, by a function.
    pub fn choose(mut self, act: impl Fn(Cue) -> Act + Send + Sync + 'static) -> Self {
        self.otherwise = Arc::new(act);
        self
    }

    /// Starts one attempt. This call records the start. The future records the end: when it
    /// finishes, panics, or is dropped before that.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it records [`Outcome::Dropped`].
    pub fn run(&self, key: impl Into<Option<Key>>, id: Id, attempt: u32) -> Scripted {
        let cue = Cue {
            key: key.into(),
            id,
            attempt,
        };
        let exact = self
            .attempts
            .get(&(id, attempt))
            .or_else(|| self.messages.get(&id));
        let act = exact.or_else(|| self.keys.get(&cue.key?));
        let act = act.cloned().unwrap_or_else(|| (self.otherwise)(cue));
        self.history.start(id, attempt, self.token);
        Scripted {
            history: self.history.clone(),
            id,
            attempt,
            steps: act.steps.into_iter(),
            step: None,
            ending: act.ending,
            panics_in_drop: act.panics_in_drop,
            ended: false,
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("token", &self.token)
            .field("attempts", &self.attempts)
            .field("messages", &self.messages)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// The attempt for which an act is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cue {
    /// The key, if it has one.
    pub key: Option<Key>,
    /// The message.
    pub id: Id,
    /// Which attempt, counted from 1.
    pub attempt: u32,
}

/// The behaviour of one attempt: steps, in the order in which they were added, and an end.
#[derive(Debug, Clone)]
#[must_use]
pub struct Act {
    steps: Vec<Step>,
    ending: Ending,
    panics_in_drop: bool,
}

impl Act {
    /// Succeeds.
    pub fn ok() -> Self {
        Self::ending(Ending::Ok)
    }

    /// Ends with an error that may be retried.
    pub fn error() -> Self {
        Self::ending(Ending::Error)
    }

    /// Ends with an error that must not be retried.
    pub fn fatal() -> Self {
        Self::ending(Ending::Fatal)
    }

    /// Panics. The panic hook is not called, so tests print nothing.
    pub fn panic() -> Self {
        Self::ending(Ending::Panic)
    }

    /// Panics at poll `poll`, counted from 1. Yields at the polls before.
    pub fn panic_at_poll(poll: u32) -> Self {
        Self::panic().yields(poll.saturating_sub(1))
    }

    /// Never ends.
    pub fn never() -> Self {
        Self::ending(Ending::Never)
    }

    /// Is pending `times` times, and wakes itself each time.
    pub fn yields(mut self, times: u32) -> Self {
        self.steps.push(Step::Yield(times));
        self
    }

    /// Is pending for a time, by Tokio's clock.
    pub fn sleeps(mut self, duration: Duration) -> Self {
        self.steps.push(Step::Sleep(duration));
        self
    }

    /// Waits at a gate.
    pub fn waits(mut self, gate: &Gate) -> Self {
        self.steps.push(Step::Wait(gate.clone()));
        self
    }

    /// Panics when its future is dropped at any point, unless the thread is already panicking.
    pub fn panics_in_drop(mut self) -> Self {
        self.panics_in_drop = true;
        self
    }

    fn ending(ending: Ending) -> Self {
        Self {
            steps: Vec::new(),
            ending,
            panics_in_drop: false,
        }
    }
}

/// The error of a scripted handler.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The script said [`Act::error`].
    #[error("scripted error of id {0}")]
    Error(Id),
    /// The script said [`Act::fatal`].
    #[error("scripted fatal error of id {0}")]
    Fatal(Id),
}

keylane_rt::text_in_debug! { ScriptError: Error, Fatal }

impl ScriptError {
    /// Returns whether the message must not be retried.
    pub fn is_fatal(&self) -> bool {
        matches!(self, ScriptError::Fatal(_))
    }
}

/// A running attempt: the future of [`Script::run`]. It returns the id.
#[must_use = "futures do nothing unless polled"]
pub struct Scripted {
    history: History,
    id: Id,
    attempt: u32,
    steps: std::vec::IntoIter<Step>,
    step: Option<Doing>,
    ending: Ending,
    panics_in_drop: bool,
    ended: bool,
}

impl Future for Scripted {
    type Output = Result<Id, ScriptError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        assert!(!this.ended, "a scripted handler was polled after its end");
        loop {
            if let Some(step) = &mut this.step {
                ready!(step.poll(cx));
            }
            this.step = this.steps.next().map(Doing::from);
            if this.step.is_none() {
                break;
            }
        }
        let id = this.id;
        let (outcome, answer) = match this.ending {
            Ending::Ok => (Outcome::Ok, Ok(id)),
            Ending::Error => (Outcome::Error, Err(ScriptError::Error(id))),
            Ending::Fatal => (Outcome::Fatal, Err(ScriptError::Fatal(id))),
            Ending::Panic => {
                this.end(Outcome::Panicked);
                resume_unwind(Box::new(format!("scripted panic of id {id}")))
            }
            Ending::Never => return Poll::Pending,
        };
        this.end(outcome);
        Poll::Ready(answer)
    }
}

impl Scripted {
    fn end(&mut self, outcome: Outcome) {
        self.ended = true;
        self.history.end(self.id, self.attempt, outcome);
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Outcome::Dropped);
        }
        if self.panics_in_drop && !std::thread::panicking() {
            resume_unwind(Box::new(format!(
                "scripted panic in the drop of id {}",
                self.id
            )));
        }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted")
            .field("id", &self.id)
            .field("attempt", &self.attempt)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// A step as the test wrote it.
#[derive(Debug, Clone)]
enum Step {
    Yield(u32),
    Sleep(Duration),
    Wait(Gate),
}

/// A step being run. The clock is read when the step begins.
enum Doing {
    Yield(u32),
    Sleep(Pin<Box<Sleep>>),
    Wait(Pass),
}

impl From<Step> for Doing {
    fn from(step: Step) -> Self {
        match step {
            Step::Yield(times) => Doing::Yield(times),
            Step::Sleep(duration) => Doing::Sleep(Box::pin(sleep(duration))),
            Step::Wait(gate) => Doing::Wait(gate.pass()),
        }
    }
}

impl Doing {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Doing::Yield(0) => Poll::Ready(()),
            Doing::Yield(left) => {
                *left -= 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Doing::Sleep(sleep) => sleep.as_mut().poll(cx),
            Doing::Wait(pass) => Pin::new(pass).poll(cx),
        }
    }
}

/// How an act ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Ok,
    Error,
    Fatal,
    Panic,
    Never,
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use tokio_test::{assert_pending, assert_ready, assert_ready_eq, task};

    use super::*;
    use crate::events::Event;

    fn outcomes(history: &History) -> Vec<Outcome> {
        let outcome = |event| match event {
            Event::End { outcome, .. } => Some(outcome),
            _ => None,
        };
        history
            .records()
            .iter()
            .filter_map(|record| outcome(record.event))
            .collect()
    }

    /// Returns the text of the panic that `f` raises.
    fn panic_of<R>(f: impl FnOnce() -> R) -> String {
        let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else {
            panic!("it did not panic")
        };
        *payload.downcast().expect("scripted panics carry a String")
    }

    #[test]
    fn endings_answer_and_are_recorded_once() {
        let history = History::new();
        let script = Script::new(&history)
            .message(2, Act::error())
            .message(3, Act::fatal())
            .token(9);
        assert_ready_eq!(task::spawn(script.run(1, 1, 1)).poll(), Ok(1));
        assert_ready_eq!(
            task::spawn(script.run(1, 2, 1)).poll(),
            Err(ScriptError::Error(2))
        );
        assert_ready_eq!(
            task::spawn(script.run(1, 3, 1)).poll(),
            Err(ScriptError::Fatal(3))
        );
        assert_eq!(
            outcomes(&history),
            [Outcome::Ok, Outcome::Error, Outcome::Fatal]
        );
        assert_eq!(
            history.records()[0].event,
            Event::Start {
                id: 1,
                attempt: 1,
                token: 9
            }
        );
        assert!(ScriptError::Fatal(3).is_fatal() && !ScriptError::Error(2).is_fatal());
    }

    #[test]
    fn the_most_exact_instruction_counts() {
        let history = History::new();
        let script = Script::new(&history)
            .choose(|cue| if cue.id == 6 { Act::ok() } else { Act::fatal() })
            .key(1, Act::error())
            .message(5, Act::fatal())
            .attempt(5, 2, Act::ok());
        let run = |key, id, attempt| {
            let mut run = task::spawn(script.run(key, id, attempt));
            assert_ready!(run.poll())
        };
        assert_eq!(run(Some(1), 5, 2), Ok(5));
        assert_eq!(run(Some(1), 5, 1), Err(ScriptError::Fatal(5)));
        assert_eq!(run(Some(1), 6, 1), Err(ScriptError::Error(6)));
        assert_eq!(run(Some(2), 6, 1), Ok(6));
        assert_eq!(run(None, 7, 1), Err(ScriptError::Fatal(7)));
    }

    #[test]
    fn panics_at_the_poll_asked_for() {
        let history = History::new();
        let script = Script::new(&history).otherwise(Act::panic_at_poll(3));
        let mut run = task::spawn(script.run(1, 4, 1));
        assert_pending!(run.poll());
        assert!(run.is_woken());
        assert_pending!(run.poll());
        assert!(outcomes(&history).is_empty());
        assert_eq!(panic_of(|| run.poll()), "scripted panic of id 4");
        drop(run);
        assert_eq!(outcomes(&history), [Outcome::Panicked]);
    }

    #[test]
    fn panics_when_dropped_midway_and_when_dropped_after_its_end() {
        let history = History::new();
        let script = Script::new(&history)
            .message(1, Act::never().panics_in_drop())
            .message(2, Act::ok().panics_in_drop());
        let mut midway = task::spawn(script.run(1, 1, 1));
        assert_pending!(midway.poll());
        assert_eq!(
            panic_of(|| drop(midway)),
            "scripted panic in the drop of id 1"
        );
        let mut ended = task::spawn(script.run(1, 2, 1));
        assert_ready_eq!(ended.poll(), Ok(2));
        assert_eq!(
            panic_of(|| drop(ended)),
            "scripted panic in the drop of id 2"
        );
        assert_eq!(outcomes(&history), [Outcome::Dropped, Outcome::Ok]);
    }

    #[test]
    fn a_run_that_was_never_polled_is_dropped_too() {
        let history = History::new();
        drop(Script::new(&history).run(1, 1, 1));
        assert_eq!(outcomes(&history), [Outcome::Dropped]);
    }

    #[test]
    fn steps_follow_each_other() {
        let history = History::new();
        let gate = Gate::new();
        let script = Script::new(&history).otherwise(Act::ok().yields(1).waits(&gate).yields(1));
        let mut run = task::spawn(script.run(1, 1, 1));
        assert_pending!(run.poll());
        assert_eq!(gate.waiting(), 0);
        assert_pending!(run.poll());
        assert_eq!(gate.waiting(), 1);
        gate.release(1);
        assert!(run.is_woken());
        assert_pending!(run.poll());
        assert_ready_eq!(run.poll(), Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn sleeps_by_the_paused_clock() {
        let history = History::new();
        let nap = Duration::from_secs(3600);
        let script = Script::new(&history).otherwise(Act::error().sleeps(nap));
        let answer = script.run(1, 1, 1).await;
        assert_eq!(answer, Err(ScriptError::Error(1)));
        let records = history.records();
        assert!(records[1].at - records[0].at >= nap);
    }
}
