//! The task of a worker that speaks with the server: one round trip after the other, each with all that
//! there is to say.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::guard::Starts;
use super::mailbox::{End, Mailbox, Taken, Token};
use super::queue::Shared;
use super::script::{Call, ENTER, TURN};
use super::wake::Wake;
use crate::error::{ErrorKind, RedisError};
use crate::link::Link;

/// Most elements in one round trip. Those of the one before are handled meanwhile.
const MOST: usize = 1_000;

/// When the inbox of another worker is looked at again that was full, and a server that could do nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Link,
    pub(super) worker: String,
    /// The last token of which it was told.
    pub(super) told: Token,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) guard: Arc<Starts>,
}

/// What is known of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// There may be more.
    More,
    /// There was nothing left.
    Nothing,
    /// The first is for a worker whose inbox is full.
    Blocked,
}

/// What a turn has brought.
pub(super) struct Turn {
    rest: Rest,
    given_back: i64,
    taken: Vec<Taken>,
}

impl Session {
    pub(super) async fn run(mut self) {
        let end = self.work().await;
        let mut state = self.mailbox.lock();
        state.not_answered();
        state.end = Some(end);
        drop(state);
        self.mailbox.to_source.notify_one();
    }

    async fn work(&mut self) -> End {
        let third = self.shared.settings.ttl / 3;
        let woken = Arc::new(Notify::new());
        let list = self.shared.settings.list.clone();
        let wake = Wake::new(self.shared.redis.clone(), list, Arc::clone(&woken));
        let mut renew_at = Instant::now() + third;
        let mut rest = Rest::More;
        let mut is_armed = false;
        loop {
            let (is_said, wants) = {
                let state = self.mailbox.lock();
                (!state.said.is_empty() || state.is_asked, state.wanted > 0)
            };
            let is_due = Instant::now() >= renew_at;
            if !(is_said || is_due || wants && rest == Rest::More) {
                if wants && rest == Rest::Nothing && !is_armed {
                    wake.arm();
                    is_armed = true;
                }
                let look_at = match wants && rest == Rest::Blocked {
                    true => renew_at.min(Instant::now() + LOOK_AGAIN),
                    false => renew_at,
                };
                tokio::select! {
                    () = self.mailbox.to_session.notified() => {}
                    () = woken.notified() => {
                        is_armed = false;
                        rest = Rest::More;
                    }
                    () = sleep_until(look_at) => if rest == Rest::Blocked {
                        rest = Rest::More;
                    },
                }
                continue;
            }
            let sent = Instant::now();
            match self.turn().await {
                Ok(turn) => {
                    renew_at = sent + third;
                    rest = turn.rest;
                    self.answered(turn, sent);
                }
                // Nothing was done, and it may be soon.
                Err(End::Failed(error))
                    if error.kind() == ErrorKind::Unable && !error.breaks_connection() =>
                {
                    if self.is_over() {
                        return End::Failed(error);
                    }
                    tracing::warn!(target: "keylane", %error, "a list could not be worked on, and is tried again");
                    sleep(LOOK_AGAIN).await;
                }
                Err(end) => return end,
            }
        }
    }

    /// Nothing was done in this turn: it is to be made again, unless the lease has run out.
    fn is_over(&self) -> bool {
        let mut state = self.mailbox.lock();
        state.not_answered();
        state.until <= Instant::now()
    }

    async fn turn(&mut self) -> Result<Turn, End> {
        let call = {
            let mut state = self.mailbox.lock();
            let most = state.begin(MOST);
            let call = self.shared.turn(&self.worker, most).arg(self.told);
            call.said(&state.telling)
        };
        let turn = parse(call.run(&mut self.link).await?)?;
        if let Some(last) = turn.taken.last() {
            self.told = last.token;
        }
        Ok(turn)
    }

    fn answered(&self, turn: Turn, sent: Instant) {
        if turn.given_back >= 0 {
            tracing::warn!(
                target: "keylane",
                elements = turn.given_back,
                "the lease of a worker has run out, and what it had is in the list again"
            );
        }
        let mut state = self.mailbox.lock();
        self.guard.note(&state.telling.notes);
        let until = ends_at(sent, self.shared.settings.ttl);
        state.answered(turn.taken.into_iter(), until);
        drop(state);
        self.mailbox.to_source.notify_one();
    }
}

/// When a lease ends for its worker that was renewed by a call which was sent then: counted from before
/// the server has done it, and a tenth earlier, for clocks that run at different speeds.
pub(super) fn ends_at(sent: Instant, ttl: Duration) -> Instant {
    sent + ttl * 9 / 10
}

impl Shared {
    /// A round trip that asks for so many elements. The last token that the worker was told of is still
    /// to be added, or nothing if it takes nothing, and then what it says.
    pub(super) fn turn(&self, worker: &str, most: usize) -> Call {
        let settings = &self.settings;
        self.call(&TURN)
            .arg(worker)
            .arg(millis(settings.ttl))
            .arg(settings.key.as_bytes())
            .arg(most)
            .arg(settings.most_bytes)
            .arg(settings.most_sent)
            .arg(i32::from(settings.is_cyclic))
    }

    /// Has a worker begin, or go on: what it had comes first. `None`: the server does not know it.
    pub(super) async fn enter(
        &self,
        link: &mut Link,
        worker: &str,
        is_new: bool,
    ) -> Result<Option<Entered>, RedisError> {
        let call = self.call(&ENTER).arg(worker).arg(millis(self.settings.ttl));
        let answer: Value = call.arg(i32::from(is_new)).run(link).await?;
        let mut answer = array(answer)?.into_iter();
        match int(answer.next())? {
            0 => Ok(None),
            _ => Ok(Some(Entered {
                told: token(&bulk(answer.next().ok_or_else(unreadable)?)?)?,
                had: taken(answer.next())?,
            })),
        }
    }
}

/// With what a worker begins, or goes on.
pub(super) struct Entered {
    /// The last token that it was told of.
    pub(super) told: Token,
    pub(super) had: Vec<Taken>,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn parse(answer: Value) -> Result<Turn, End> {
    let mut answer = array(answer)?.into_iter();
    match int(answer.next())? {
        0 => return Err(End::Lost),
        2 => return Err(End::Missed),
        _ => {}
    }
    let _settled = int(answer.next())?;
    let (waiting, inbox) = (int(answer.next())?, int(answer.next())?);
    let is_blocked = int(answer.next())? == 1;
    let given_back = int(answer.next())?;
    let rest = match (waiting + inbox, is_blocked) {
        (0, _) => Rest::Nothing,
        (_, true) if inbox == 0 => Rest::Blocked,
        _ => Rest::More,
    };
    let taken = taken(answer.next())?;
    Ok(Turn {
        rest,
        given_back,
        taken,
    })
}

fn taken(value: Option<Value>) -> Result<Vec<Taken>, RedisError> {
    let mut values = array(value.unwrap_or(Value::Nil))?.into_iter();
    let mut taken = Vec::with_capacity(values.len() / 2);
    while let (Some(text), Some(element)) = (values.next(), values.next()) {
        let text = bulk(text)?;
        taken.push(Taken {
            token: token(&text)?,
            text,
            element: bulk(element)?,
        });
    }
    Ok(taken)
}

fn token(text: &[u8]) -> Result<Token, RedisError> {
    let token = std::str::from_utf8(text).ok();
    token
        .and_then(|token| token.parse().ok())
        .ok_or_else(unreadable)
}

fn array(value: Value) -> Result<Vec<Value>, RedisError> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(unreadable()),
    }
}

fn int(value: Option<Value>) -> Result<i64, RedisError> {
    match value {
        Some(Value::Int(int)) => Ok(int),
        _ => Err(unreadable()),
    }
}

fn bulk(value: Value) -> Result<Bytes, RedisError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        _ => Err(unreadable()),
    }
}

fn unreadable() -> RedisError {
    RedisError::new(ErrorKind::Other, "an answer that is none of ours")
}
