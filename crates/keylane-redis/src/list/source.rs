//! A list as a source.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keylane_source::{
    Deliveries, Delivery, Features, Generation, Outcome, RawMessage, Received, Settlement, Source,
    SourceError, SourceLetter, StartGuard,
};
use redis::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::element::{decode, key_of, letter_head};
use super::guard::Starts;
use super::outbox::{Calls, End, ListOutbox, Outgoing, Place, Taken, Token};
use super::peers::Peers;
use super::position::ListPosition;
use super::script::{LEAVE, LETTER, REREAD, tagged};
use super::session::{Memory, Session, ends_at};
use super::shared::Shared;
use crate::letter::Why;
use crate::link::Link;

/// The elements of a list, as a source for a dispatcher. Created by
/// [`ListQueue::source`](crate::ListQueue::source); each source is a worker of its own.
///
/// A list may be unusable, because its key has another type or the user has no right to it. Then
/// the source stays `Opening`, and its `last_error` contains the message of the server. It tries
/// again, and logs that, at growing pauses. If the user has all rights except `BLMOVE`, the source
/// looks at the list five times a second; `failed_parts` reports it.
#[derive(Debug)]
pub struct ListSource {
    shared: Arc<Shared>,
    guard: Arc<Starts>,
    /// The name of this source in the server. When the connection comes back, the source goes on
    /// with its elements, unless the server has given them to other workers.
    worker: Option<String>,
    open: Option<Open>,
    opened: u64,
    /// Settlements that the server may not know, from before the source was opened again.
    untold: Outgoing,
    /// Returned elements, to be handed over again.
    again: Vec<Place>,
    /// The highest token of an element that was handed over.
    highest: Token,
    /// Elements with this token or a lower one were handed over before the source was opened: they
    /// come again, and their old settlements do not count.
    past: Token,
    /// The calls of this worker while it is not open.
    calls: Calls,
}

#[derive(Debug)]
struct Open {
    link: Link,
    mailbox: Arc<ListOutbox>,
    session: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.session.abort();
    }
}

impl ListSource {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            guard: Arc::default(),
            worker: None,
            open: None,
            opened: 0,
            untold: Outgoing::default(),
            again: Vec::new(),
            highest: 0,
            past: 0,
            calls: Calls::default(),
        }
    }

    /// Returns the name of the list for messages and logs.
    fn list(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.shared.settings.list)
    }

    fn opened(&mut self) -> Result<&mut Open, SourceError> {
        self.open
            .as_mut()
            .ok_or_else(|| SourceError::failed("the list is not open"))
    }

    /// Goes on as the worker that this source was.
    async fn resume(&mut self, link: &mut Link, worker: &str) -> Result<Memory, End> {
        if !self.untold.is_empty() {
            // Sends the changes once more, which has no effect if they were applied. A server with
            // an earlier state has handed out no other element under these names.
            let told = self.shared.tell(link, worker, self.highest, &self.untold);
            told.await?;
            self.untold = Outgoing::default();
        }
        self.enter(link, worker, false).await
    }

    async fn enter(&mut self, link: &mut Link, worker: &str, is_new: bool) -> Result<Memory, End> {
        self.calls.sent += 1;
        let (calls, highest) = (self.calls, self.highest);
        let entered = self.shared.enter(link, worker, is_new, calls, highest);
        let memory = entered.await?;
        self.calls.heard = calls.sent;
        Ok(memory)
    }

    /// Marks all elements as lost: other workers may have them, or had them in the state that the
    /// server has forgotten.
    fn lose(&mut self, has_forgotten: bool) {
        self.guard.lose(self.highest);
        if has_forgotten {
            tracing::warn!(
                target: "keylane",
                list = %self.list(),
                "the server has an earlier state and has lost confirmed changes: the list is \
                 read again"
            );
        }
    }

    /// Begins, or goes on as the worker that this source was. Returns the worker, and whether the
    /// server knew it.
    async fn begin(&mut self, link: &mut Link) -> Result<(String, bool), SourceError> {
        if let Some(worker) = self.worker.clone() {
            match self.resume(link, &worker).await {
                Ok(memory) => {
                    if memory == Memory::Earlier {
                        self.lose(true);
                    }
                    return Ok((worker, true));
                }
                Err(end @ (End::Lost | End::Forgotten)) => {
                    self.lose(matches!(end, End::Forgotten));
                    self.untold = Outgoing::default();
                    self.worker = None;
                }
                Err(end) => return Err(failed(&end)),
            }
        }
        // Before the request: a call that is dropped is resumed.
        let worker = self.worker.insert(new_worker()).clone();
        self.calls = Calls::default();
        let entered = self.enter(link, &worker, true).await;
        entered.map_err(|end| failed(&end))?;
        Ok((worker, false))
    }

    fn delivery(&self, taken: Taken) -> Delivery<RawMessage, ListPosition> {
        let key = key_of(&taken.element);
        let (mut message, past) = decode(taken.element);
        let is_free = !past.is_suspect && !self.shared.settings.exact_starts;
        let position = ListPosition {
            place: taken.place,
            token: taken.token,
            key,
            noted: past.attempts.saturating_add(u32::from(is_free)),
        };
        message.position = Some(taken.text);
        Delivery::raw(message, position)
            .generation(Generation(self.opened))
            .attempts(past.attempts)
    }
}

impl Source for ListSource {
    type Message = RawMessage;
    type Position = ListPosition;

    fn name(&self) -> String {
        format!("list {}", self.list())
    }

    fn features(&self) -> Features {
        let features = Features::new()
            .nack()
            .survives_restart()
            .random_access()
            .counts_attempts();
        match self.shared.settings.keeps_letters {
            true => features.dead_letters(),
            false => features,
        }
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        if let Some(open) = self.open.take() {
            let mut state = open.mailbox.lock();
            state.not_answered();
            let said = std::mem::take(&mut state.said);
            // The notes and the returned elements come with the rest.
            (self.untold.done, self.untold.gone) = (said.done, said.gone);
            self.calls = state.calls;
        }
        self.again.clear();
        let mut link = self
            .shared
            .redis
            .connect()
            .await
            .map_err(SourceError::failed)?;
        self.past = self.highest;
        let sent = Instant::now();
        let (worker, was_known) = self.begin(&mut link).await?;
        self.opened += 1;
        let until = ends_at(sent, self.shared.settings.ttl);
        let mailbox = Arc::new(ListOutbox::new(until, self.calls));
        self.guard.opened(Arc::clone(&mailbox));
        let session = Session {
            shared: Arc::clone(&self.shared),
            link: link.clone(),
            keys: self.shared.keys.of(&worker),
            worker,
            peers: Peers::default(),
            // All its elements come again.
            after: was_known.then_some(0),
            highest: self.highest,
            mailbox: Arc::clone(&mailbox),
            guard: Arc::clone(&self.guard),
        };
        let session = tokio::spawn(session.run());
        self.open = Some(Open {
            link,
            mailbox,
            session,
        });
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, ListPosition>,
    ) -> Result<Received<ListPosition>, SourceError> {
        let mailbox = Arc::clone(&self.opened()?.mailbox);
        // The count of answers when the source asked whether the server is well.
        let mut asked = None;
        loop {
            let until = {
                let mut state = mailbox.lock();
                if let Some(end) = &state.end {
                    return Err(failed(end));
                }
                if state.until <= Instant::now() {
                    return Err(SourceError::failed("the lease of this worker has run out"));
                }
                let part = || format!("{} (waiting)", self.list());
                match state.wait.take() {
                    Some(Err(why)) => into.part_failed(part(), why),
                    Some(Ok(())) => into.part_recovered(part()),
                    None => {}
                }
                while into.room() > 0
                    && let Some(taken) = state.taken.pop_front()
                {
                    self.highest = self.highest.max(taken.token);
                    into.push(self.delivery(taken));
                }
                let room = into.room();
                let is_more = state.want(room);
                let comes_again = room > 0 && !self.again.is_empty();
                if comes_again {
                    self.again.sort_unstable();
                    state.said.again.append(&mut self.again);
                }
                if is_more || comes_again {
                    mailbox.to_session.notify_one();
                }
                if !into.is_empty() {
                    return Ok(Received::Messages);
                }
                if asked.is_some_and(|asked| state.answers > asked) {
                    return Ok(Received::Idle);
                }
                state.until
            };
            let idle = into.until();
            tokio::select! {
                () = mailbox.to_source.notified() => {}
                () = sleep_until(until) => {}
                () = sleep_until(idle), if asked.is_none() => {
                    let mut state = mailbox.lock();
                    asked = Some(state.answers);
                    state.is_asked = true;
                    mailbox.to_session.notify_one();
                }
            }
        }
    }

    async fn settle(&mut self, settled: &[Settlement<ListPosition>]) -> Result<(), SourceError> {
        let mailbox = Arc::clone(&self.opened()?.mailbox);
        let (again, past) = (&mut self.again, self.past);
        mailbox.say(|said| {
            let settled = settled.iter().filter(|one| one.position.token > past);
            for Settlement {
                position, outcome, ..
            } in settled
            {
                let place = position.place;
                let told = || (place, position.key.clone());
                match *outcome {
                    Outcome::Done => said.done.push(told()),
                    Outcome::Returned { attempts, .. } => {
                        // Also that there was no attempt, if one was noted and then dropped.
                        if attempts > 0 || position.noted == 0 {
                            said.notes.push((place, attempts));
                        }
                        again.push(place);
                    }
                    // Also if the letter is kept, and the element is gone.
                    _ => said.gone.push(told()),
                }
            }
        });
        Ok(())
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        let mailbox = Arc::clone(&self.opened()?.mailbox);
        loop {
            {
                let state = mailbox.lock();
                if state.is_confirmed() {
                    return Ok(());
                }
                if let Some(end) = &state.end {
                    return Err(failed(end));
                }
            }
            mailbox.to_source.notified().await;
        }
    }

    async fn reread(
        &mut self,
        positions: &[ListPosition],
        into: &mut Deliveries<RawMessage, ListPosition>,
    ) -> Result<(), SourceError> {
        let keys = self
            .shared
            .keys
            .of(self.worker.as_deref().unwrap_or_default());
        let mut positions = positions;
        while !positions.is_empty() {
            let places: Vec<Place> = positions.iter().map(|position| position.place).collect();
            let call = self.shared.call_of(&REREAD, &keys);
            let call = call.arg(self.shared.settings.most_bytes).arg(places);
            let open = self.opened()?;
            let page = call.run(&mut open.link).await;
            let page: Vec<Value> = page.map_err(SourceError::failed)?;
            let (read, rest) = positions.split_at(page.len().clamp(1, positions.len()));
            let mailbox = Arc::clone(&open.mailbox);
            for (position, element) in read.iter().zip(page) {
                let Value::BulkString(element) = element else {
                    continue;
                };
                let is_settled = {
                    let state = mailbox.lock();
                    state.said.settles(position.place) || state.telling.settles(position.place)
                };
                if is_settled {
                    continue;
                }
                let taken = Taken {
                    place: position.place,
                    token: position.token,
                    text: position.token.to_string().into(),
                    element: element.into(),
                };
                let mut delivery = self.delivery(taken);
                delivery.position = position.clone();
                into.push(delivery);
            }
            positions = rest;
        }
        Ok(())
    }

    async fn dead_letter(&mut self, letter: SourceLetter<ListPosition>) -> Result<(), SourceError> {
        if !self.shared.settings.keeps_letters {
            return Err(SourceError::unsupported("keep dead letters"));
        }
        let worker = self.worker.clone().unwrap_or_default();
        let SourceLetter { position, .. } = &letter;
        let why = Why {
            attempts: letter.attempts,
            cause: letter.cause,
            error: letter.why.clone(),
        };
        let key = position.key.as_deref();
        let call = self.shared.call_of(&LETTER, &self.shared.keys.of(&worker));
        let call = call.arg(worker).arg(position.place);
        let call = call
            .arg(tagged(key))
            .arg(&*letter_head(key, &why.headers()));
        let kept: i64 = call
            .run(&mut self.opened()?.link)
            .await
            .map_err(SourceError::failed)?;
        if kept == 0 {
            // The source is opened again, and gets the elements that the server has for it.
            let mailbox = &self.opened()?.mailbox;
            mailbox.lock().end.get_or_insert(End::Missed);
            mailbox.to_source.notify_one();
            return Err(SourceError::failed("the worker no longer has this message"));
        }
        Ok(())
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<ListPosition>>> {
        Some(Arc::clone(&self.guard) as Arc<dyn StartGuard<ListPosition>>)
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        let (Some(mut open), Some(worker)) = (self.open.take(), self.worker.take()) else {
            return Ok(());
        };
        let call = self.shared.call_of(&LEAVE, &self.shared.keys.of(&worker));
        let left: Result<i64, _> = call.arg(worker).run(&mut open.link).await;
        left.map(drop).map_err(SourceError::failed)
    }
}

fn failed(end: &End) -> SourceError {
    match end {
        End::Lost => SourceError::failed(
            "the lease of this worker has run out: other workers have its messages",
        ),
        End::Missed => SourceError::failed(
            "an answer of the server was lost: its messages are delivered again",
        ),
        End::Forgotten => {
            SourceError::failed("the server has an earlier state and has lost confirmed changes")
        }
        End::Failed(error) => SourceError::failed(error.clone()),
    }
}

/// Returns a name that no worker has had.
fn new_worker() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let random = RandomState::new().hash_one((std::time::SystemTime::now(), next));
    format!("{}-{random:016x}", std::process::id())
}
