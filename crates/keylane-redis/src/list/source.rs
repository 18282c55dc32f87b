//! A list as a source.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use keylane::source::{
    Deliveries, Delivery, Features, Generation, Outcome, RawMessage, Received, Settlement, Source,
    SourceError, SourceLetter, StartGuard,
};
use redis::{Value, cmd};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::element::{decode, key_of, letter_head};
use super::guard::Starts;
use super::mailbox::{End, Mailbox, Said, Taken, Token};
use super::queue::{ListQueue, Shared};
use super::script::{LEAVE, LETTER, tagged};
use super::session::{Entered, Session, ends_at, parse};
use crate::letter::Why;
use crate::link::Link;

/// The elements of a list, for a [dispatcher](keylane::Dispatcher::consume). Made by
/// [`ListQueue::source`]; each is a worker of its own.
#[derive(Debug)]
pub struct ListSource {
    shared: Arc<Shared>,
    guard: Arc<Starts>,
    /// What the server knows this source by. It goes on with what it had when the connection comes back,
    /// as long as the server has not given that to others.
    worker: Option<String>,
    open: Option<Open>,
    opened: u64,
    /// What is settled, and may not be told, from the time before the source was opened again.
    untold: Said,
    /// Given back, to be handed over again.
    again: Vec<Token>,
    /// The letters of these are kept, and they are gone.
    lettered: HashSet<Token>,
    /// The highest token of what was handed over.
    highest: Token,
}

#[derive(Debug)]
struct Open {
    link: Link,
    mailbox: Arc<Mailbox>,
    session: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.session.abort();
    }
}

/// One hand-out of an element.
#[derive(Clone, PartialEq, Eq)]
pub struct ListPosition {
    pub(super) token: Token,
    pub(super) key: Option<Bytes>,
    /// Attempts up to this one may start without a note.
    pub(super) noted: u32,
}

impl ListPosition {
    /// The fencing token of the hand-out: higher than that of each one before, of all elements of the
    /// list.
    pub fn token(&self) -> u64 {
        self.token
    }
}

impl fmt::Debug for ListPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ListPosition").field(&self.token).finish()
    }
}

impl ListSource {
    pub(super) fn new(queue: &ListQueue) -> Self {
        Self {
            shared: Arc::clone(&queue.shared),
            guard: Arc::default(),
            worker: None,
            open: None,
            opened: 0,
            untold: Said::default(),
            again: Vec::new(),
            lettered: HashSet::new(),
            highest: 0,
        }
    }

    fn opened(&mut self) -> Result<&mut Open, SourceError> {
        self.open
            .as_mut()
            .ok_or_else(|| SourceError::failed("the list is not open"))
    }

    /// Goes on as the worker that this source was. `None`: others have what it had.
    async fn resume(&mut self, link: &mut Link) -> Result<Option<Entered>, SourceError> {
        let Some(worker) = &self.worker else {
            return Ok(None);
        };
        if !self.untold.is_empty() {
            // Told once more, which changes nothing where it was done.
            let call = self.shared.turn(worker, 0).arg("").said(&self.untold);
            match parse(call.run(link).await.map_err(SourceError::failed)?) {
                Ok(_) => self.untold = Said::default(),
                Err(End::Lost) => {
                    self.untold = Said::default();
                    self.worker = None;
                    return Ok(None);
                }
                Err(end) => return Err(failed(&end)),
            }
        }
        let entered = self.shared.enter(link, worker, false).await;
        let entered = entered.map_err(SourceError::failed)?;
        if entered.is_none() {
            self.worker = None;
        }
        Ok(entered)
    }

    fn delivery(&self, taken: Taken) -> Delivery<RawMessage, ListPosition> {
        let key = key_of(&taken.element);
        let (mut message, past) = decode(taken.element);
        let is_free = !past.is_suspect && !self.shared.settings.exact_starts;
        let position = ListPosition {
            token: taken.token,
            key,
            noted: past.attempts.saturating_add(u32::from(is_free)),
        };
        message.position = Some(taken.text);
        Delivery::new(message, position)
            .generation(Generation(self.opened))
            .attempts(past.attempts)
    }
}

impl Source for ListSource {
    type Message = RawMessage;
    type Position = ListPosition;

    fn name(&self) -> String {
        let list = String::from_utf8_lossy(&self.shared.settings.list);
        format!("list {list}")
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
            // What was to be noted, or to come again, comes with the rest.
            (self.untold.done, self.untold.gone) = (said.done, said.gone);
        }
        self.again.clear();
        self.lettered.clear();
        let mut link = self
            .shared
            .redis
            .connect()
            .await
            .map_err(SourceError::failed)?;
        let mut sent = Instant::now();
        let entered = match self.resume(&mut link).await? {
            Some(entered) => entered,
            None => {
                self.guard.lose(self.highest);
                let worker = new_worker();
                // Before it is asked for: a call that is dropped is resumed.
                let worker = self.worker.insert(worker);
                sent = Instant::now();
                let entered = self.shared.enter(&mut link, worker, true).await;
                let entered = entered.map_err(SourceError::failed)?;
                entered.ok_or_else(|| SourceError::failed("a new worker was refused"))?
            }
        };
        self.opened += 1;
        let until = ends_at(sent, self.shared.settings.ttl);
        let mailbox = Arc::new(Mailbox::new(VecDeque::from(entered.had), until));
        self.guard.opened(Arc::clone(&mailbox));
        let session = Session {
            shared: Arc::clone(&self.shared),
            link: link.clone(),
            worker: self.worker.clone().unwrap_or_default(),
            told: entered.told,
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
        // How often the server had answered when it was asked whether it is well.
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
        let (again, lettered) = (&mut self.again, &mut self.lettered);
        mailbox.say(|said| {
            for Settlement {
                position, outcome, ..
            } in settled
            {
                let token = position.token;
                let told = || (token, position.key.clone());
                match *outcome {
                    Outcome::Done => said.done.push(told()),
                    Outcome::Returned { attempts, .. } => {
                        // Also that there was none, where one was noted that was dropped.
                        if attempts > 0 || position.noted == 0 {
                            said.notes.push((token, attempts));
                        }
                        again.push(token);
                    }
                    _ if lettered.remove(&token) => {}
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
        let worker = self.worker.clone().unwrap_or_default();
        let held = self.shared.beside("work:", &worker);
        let open = self.opened()?;
        let mut command = cmd("HMGET");
        command.arg(&*held);
        for position in positions {
            command.arg(position.token);
        }
        let elements: Vec<Value> = open.link.ask(&command).await.map_err(SourceError::failed)?;
        let mailbox = Arc::clone(&open.mailbox);
        for (position, element) in positions.iter().zip(elements) {
            let Value::BulkString(element) = element else {
                continue;
            };
            let is_settled = {
                let state = mailbox.lock();
                state.said.settles(position.token) || state.telling.settles(position.token)
            };
            if is_settled {
                continue;
            }
            let taken = Taken {
                token: position.token,
                text: position.token.to_string().into(),
                element: element.into(),
            };
            let mut delivery = self.delivery(taken);
            delivery.position = position.clone();
            into.push(delivery);
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
        let call = self.shared.call(&LETTER).arg(worker).arg(position.token);
        let call = call
            .arg(tagged(key))
            .arg(&*letter_head(key, &why.headers()));
        let kept: i64 = call
            .run(&mut self.opened()?.link)
            .await
            .map_err(SourceError::failed)?;
        if kept == 0 {
            return Err(SourceError::failed("the lease of this worker has run out"));
        }
        self.lettered.insert(position.token);
        Ok(())
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<ListPosition>>> {
        Some(Arc::clone(&self.guard) as Arc<dyn StartGuard<ListPosition>>)
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        let (Some(mut open), Some(worker)) = (self.open.take(), self.worker.take()) else {
            return Ok(());
        };
        let left: Result<i64, _> = self
            .shared
            .call(&LEAVE)
            .arg(worker)
            .run(&mut open.link)
            .await;
        left.map(drop).map_err(SourceError::failed)
    }
}

fn failed(end: &End) -> SourceError {
    match end {
        End::Lost => {
            SourceError::failed("the lease of this worker has run out, and others have what it had")
        }
        End::Missed => SourceError::failed(
            "an answer of the server was lost, and what it has handed out comes again",
        ),
        End::Failed(error) => SourceError::failed(error.clone()),
    }
}

/// A name that no worker has had.
fn new_worker() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let random = RandomState::new().hash_one((std::time::SystemTime::now(), next));
    format!("{}-{random:016x}", std::process::id())
}
