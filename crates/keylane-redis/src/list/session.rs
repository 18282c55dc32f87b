//! The task of a worker that talks to the server: one round trip after the other, each with all
//! pending changes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::guard::Starts;
use super::keys::WorkerKeys;
use super::outbox::{Calls, End, ListOutbox, Outgoing, Place, Taken, Token};
use super::peers::Peers;
use super::script::{Call, ENTER, TURN};
use super::shared::Shared;
use super::wake::Wake;
use crate::error::{ErrorKind, RedisError};
use crate::link::Link;

/// Most elements in one round trip. The worker handles the earlier ones meanwhile.
const MOST: usize = 1_000;

/// The pause before it looks again at a full inbox of another worker, or at a server that could not
/// execute the call.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Link,
    pub(super) worker: String,
    pub(super) keys: WorkerKeys,
    pub(super) peers: Peers,
    /// The place up to which the server has handed the worker its elements again after it entered,
    /// if there are more.
    pub(super) after: Option<Place>,
    /// The highest token that it has received.
    pub(super) highest: Token,
    pub(super) mailbox: Arc<ListOutbox>,
    pub(super) guard: Arc<Starts>,
}

/// What the worker knows of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// There may be more elements.
    More,
    /// There were no more elements.
    Nothing,
    /// The first element is for a worker whose inbox is full.
    Blocked,
}

/// The answer to a turn.
pub(super) struct RoundTripReply {
    rest: Rest,
    after: Option<Place>,
    /// How many of the returned elements have come again.
    came: usize,
    /// A worker that is gone, and a key that it still owns.
    lost: Option<(String, Bytes)>,
    /// Workers whose inboxes are needed.
    unmet: Vec<String>,
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
        let redis = self.shared.redis.clone();
        let wake = Wake::new(redis, list, Arc::clone(&woken), Arc::clone(&self.mailbox));
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
            match self.round_trip(sent).await {
                Ok(left) => {
                    renew_at = sent + third;
                    rest = left;
                }
                // Nothing was done; it may succeed soon.
                Err(End::Failed(error))
                    if error.kind() == ErrorKind::Unable && !error.breaks_connection() =>
                {
                    if self.is_over() {
                        return End::Failed(error);
                    }
                    tracing::warn!(
                        target: "keylane",
                        %error,
                        "the server cannot serve the list now, will retry"
                    );
                    sleep(LOOK_AGAIN).await;
                }
                Err(end) => return end,
            }
        }
    }

    /// The server has done nothing in this turn. Returns whether the lease has run out; otherwise
    /// the turn is repeated.
    fn is_over(&self) -> bool {
        let mut state = self.mailbox.lock();
        state.not_answered();
        state.until <= Instant::now()
    }

    async fn round_trip(&mut self, sent: Instant) -> Result<Rest, End> {
        let turn = self.turn().await?;
        self.after = turn.after;
        for taken in &turn.taken {
            self.highest = self.highest.max(taken.token);
        }
        for worker in turn.unmet {
            self.peers.meet(&self.shared.keys, worker);
        }
        self.answered(turn.taken, turn.came, sent);
        if let Some((worker, key)) = &turn.lost {
            self.give_back(worker, key).await?;
        }
        Ok(turn.rest)
    }

    async fn turn(&mut self) -> Result<RoundTripReply, End> {
        let call = {
            let mut state = self.mailbox.lock();
            let most = state.begin(MOST);
            let Calls { sent, heard } = state.calls;
            let after = self.after.map(|place| place.to_string());
            let peers = self.peers.names();
            let call = Call::of(&TURN, &self.shared.keys, &self.keys, self.peers.inboxes());
            let call = self.shared.turn(call, &self.worker, most);
            let call = call.arg(heard).arg(sent).arg(after.unwrap_or_default());
            call.arg(peers.len()).arg(peers).said(&state.telling)
        };
        parse(call.run(&mut self.link).await?, self.highest)
    }

    fn answered(&self, taken: Vec<Taken>, came: usize, sent: Instant) {
        let mut state = self.mailbox.lock();
        self.guard.note(&state.telling.notes);
        let until = ends_at(sent, self.shared.settings.ttl);
        state.answered(taken, came, until);
        drop(state);
        self.mailbox.to_source.notify_one();
    }

    /// Gives the elements of a worker that is gone back to the list, in a step of its own, with the
    /// keys of that worker.
    async fn give_back(&mut self, worker: &str, key: &[u8]) -> Result<(), End> {
        let elements = self.shared.expire(&mut self.link, worker, key).await?;
        self.peers.has_gone(worker);
        if let Some(elements) = elements {
            tracing::warn!(
                target: "keylane",
                elements,
                "the lease of a worker has run out: its messages are in the list again"
            );
        }
        Ok(())
    }
}

/// Returns when a lease ends for its worker, if the call that renewed it was sent at this time:
/// counted from before the server has executed it, and a tenth earlier, because clocks run at
/// different speeds.
pub(super) fn ends_at(sent: Instant, ttl: Duration) -> Instant {
    sent + ttl * 9 / 10
}

impl Shared {
    /// Creates a round trip that asks for this many elements. The caller adds the numbers of calls,
    /// the place up to which the worker was handed its elements again, its peers, and then its
    /// changes.
    fn turn(&self, call: Call, worker: &str, most: usize) -> Call {
        let settings = &self.settings;
        call.arg(worker)
            .arg(millis(settings.ttl))
            .arg(settings.key.as_bytes())
            .arg(most)
            .arg(settings.most_bytes)
            .arg(settings.most_sent)
            .arg(i32::from(settings.is_cyclic))
    }

    /// Sends only these changes, and takes no element. Changes that were applied before have no
    /// effect.
    pub(super) async fn tell(
        &self,
        link: &mut Link,
        worker: &str,
        highest: Token,
        said: &Outgoing,
    ) -> Result<(), End> {
        let call = self.call_of(&TURN, &self.keys.of(worker));
        let call = self.turn(call, worker, 0).arg("").arg("").arg("").arg(0);
        parse(call.said(said).run(link).await?, highest).map(drop)
    }

    /// Makes a worker begin, or go on with its elements, by the last call that was sent. Returns
    /// what the server knows of the earlier calls.
    pub(super) async fn enter(
        &self,
        link: &mut Link,
        worker: &str,
        is_new: bool,
        calls: Calls,
        highest: Token,
    ) -> Result<Memory, End> {
        let call = self.call_of(&ENTER, &self.keys.of(worker)).arg(worker);
        let call = call.arg(millis(self.settings.ttl)).arg(i32::from(is_new));
        let call = call.arg(calls.heard).arg(calls.sent).arg(highest);
        let mut answer = array(call.run(link).await?)?.into_iter();
        match int(answer.next())? {
            0 => Err(unknown(answer.next(), highest)?),
            3 => Ok(Memory::Earlier),
            _ => Ok(Memory::Whole),
        }
    }
}

/// What a server knows of the changes that it has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Whole,
    /// It has an earlier state.
    Earlier,
}

/// Returns why a server does not know a worker with this highest token, by the last token of the
/// server.
fn unknown(last: Option<Value>, highest: Token) -> Result<End, RedisError> {
    let last = number(&bulk(last.ok_or_else(unreadable)?)?)?;
    Ok(match last < highest {
        true => End::Forgotten,
        false => End::Lost,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn parse(answer: Value, highest: Token) -> Result<RoundTripReply, End> {
    let mut answer = array(answer)?.into_iter();
    match int(answer.next())? {
        0 => return Err(unknown(answer.next(), highest)?),
        2 => return Err(End::Missed),
        3 => return Err(End::Forgotten),
        _ => {}
    }
    let (waiting, inbox) = (int(answer.next())?, int(answer.next())?);
    let is_blocked = int(answer.next())? == 1;
    let mut next = || answer.next().ok_or_else(unreadable);
    let after = match bulk(next()?)? {
        after if after.is_empty() => None,
        after => Some(number(&after)?),
    };
    let came = usize::try_from(int(Some(next()?))?).unwrap_or(0);
    let (lost, key) = (text(next()?)?, bulk(next()?)?);
    let lost = (!lost.is_empty()).then_some((lost, key));
    let unmet = array(next()?)?.into_iter().map(text);
    let unmet: Vec<String> = unmet.collect::<Result<_, _>>()?;
    let mut taken = handed_back(next()?)?;
    taken.append(&mut handed_out(next()?)?);
    let is_more = after.is_some() || lost.is_some() || !unmet.is_empty();
    let rest = match (waiting + inbox, is_blocked) {
        _ if is_more => Rest::More,
        (0, _) => Rest::Nothing,
        (_, true) if inbox == 0 => Rest::Blocked,
        _ => Rest::More,
    };
    Ok(RoundTripReply {
        rest,
        after,
        came,
        lost,
        unmet,
        taken,
    })
}

/// Parses elements of a first hand-out: the token is the place.
fn handed_out(value: Value) -> Result<Vec<Taken>, RedisError> {
    let mut values = array(value)?.into_iter();
    let mut taken = Vec::with_capacity(values.len() / 2);
    while let (Some(text), Some(element)) = (values.next(), values.next()) {
        let text = bulk(text)?;
        let token = number(&text)?;
        taken.push(Taken {
            place: token,
            token,
            text,
            element: bulk(element)?,
        });
    }
    Ok(taken)
}

/// Parses elements that are handed out again, under a new token.
fn handed_back(value: Value) -> Result<Vec<Taken>, RedisError> {
    let mut values = array(value)?.into_iter();
    let mut taken = Vec::with_capacity(values.len() / 3);
    while let (Some(place), Some(text), Some(element)) =
        (values.next(), values.next(), values.next())
    {
        let text = bulk(text)?;
        taken.push(Taken {
            place: number(&bulk(place)?)?,
            token: number(&text)?,
            text,
            element: bulk(element)?,
        });
    }
    Ok(taken)
}

fn number(text: &[u8]) -> Result<u64, RedisError> {
    let number = std::str::from_utf8(text).ok();
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(unreadable)
}

fn text(value: Value) -> Result<String, RedisError> {
    String::from_utf8(bulk(value)?.into()).map_err(|_| unreadable())
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
    RedisError::new(ErrorKind::Other, "unexpected answer")
}
