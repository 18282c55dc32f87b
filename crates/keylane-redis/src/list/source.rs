//! A list as a system of workers: its requests and answers.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use keylane_connector::{
    Changes, End, Entry, ErrorKind, Handed, Memory, Reply, Rest, System, Why, WorkerPosition,
    WorkerSource, lock, worker_source,
};
use keylane_metrics::Figures;
use keylane_source::{Features, RawMessage};
use redis::{FromRedisValue, Value, cmd, from_redis_value};
use tokio::time::sleep;

use super::figures::ListFigures;
use super::keys::WorkerKeys;
use super::peers::Peers;
use super::queue::List;
use super::record::{decode, key_of, letter_parts};
use super::script::{ENTER, LEAVE, LETTER, REREAD, TURN, run, tagged};
use crate::error::RedisError;
use crate::link::Link;

worker_source! {
    /// The elements of a list, as a source for a dispatcher. Created by
    /// [`ListQueue::source`](crate::ListQueue::source); each source is a worker of its own.
    ///
    /// A list may be unusable, because its key has another type or the user has no right to it.
    /// Then the source stays `Opening`, and its `last_error` contains the message of the server. It
    /// tries again, and logs that, at growing pauses. If the user has all rights except `BLMOVE`,
    /// the source looks at the list five times a second; `failed_parts` reports it.
    pub struct ListSource(List) of HandOut;
}

impl ListSource {
    pub(super) fn new(list: &Arc<List>) -> Self {
        Self(WorkerSource::new(Arc::clone(list)))
    }
}

/// The position of an element that was handed out.
pub type ListPosition = WorkerPosition<HandOut>;

/// Identifies one hand-out of an element: each token is higher than all earlier ones of the list.
pub(super) type Token = u64;

/// The place of an element at a worker: the token of its first hand-out there.
pub(super) type Place = u64;

/// How long one wait lasts.
const WAIT: Duration = Duration::from_secs(5);

/// The pause before a wait on a new connection.
const PAUSE: Duration = Duration::from_millis(200);

/// One hand-out of an element to a worker. Two of the same element to the same worker are equal.
#[derive(Clone, Debug)]
pub struct HandOut {
    place: Place,
    token: Token,
    key: Option<Bytes>,
}

impl HandOut {
    /// Returns the fencing token: it is higher than those of all earlier hand-outs of the list.
    pub fn token(&self) -> u64 {
        self.token
    }
}

impl PartialEq for HandOut {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for HandOut {}

impl PartialOrd for HandOut {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HandOut {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place.cmp(&other.place)
    }
}

impl Hash for HandOut {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place.hash(state);
    }
}

/// A worker of a list.
pub(super) struct ListWorker {
    name: String,
    keys: WorkerKeys,
    /// The numbers of the calls, unique as long as the worker lives: the last one that was sent,
    /// and the last one that is known to be done. The server keeps the number of the last call that
    /// it has done. So the server detects a call that comes late or twice, and the worker detects a
    /// server that has gone back.
    sent: AtomicU64,
    heard: AtomicU64,
    progress: Mutex<Progress>,
    figures: Figures<ListFigures>,
}

#[derive(Default)]
struct Progress {
    /// The place up to which the server has handed the worker its elements again after it entered,
    /// if there are more.
    after: Option<Place>,
    peers: Peers,
}

impl ListWorker {
    /// Begins a call. Returns its number, and that of the last call that is known to be done.
    fn call(&self) -> (u64, u64) {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        (sent, self.heard.load(Ordering::Relaxed))
    }

    fn progress<T>(&self, look: impl FnOnce(&mut Progress) -> T) -> T {
        look(&mut lock(&self.progress))
    }
}

impl From<RedisError> for End<RedisError> {
    fn from(error: RedisError) -> Self {
        match error.kind() == ErrorKind::Unable && !error.breaks_connection() {
            true => Self::Unable(error),
            false => Self::Failed(error),
        }
    }
}

impl System for List {
    type Id = HandOut;
    type Worker = ListWorker;
    type Link = Link;
    type Error = RedisError;

    fn name(&self) -> String {
        format!("list {}", String::from_utf8_lossy(&self.settings.list))
    }

    fn describe(&self, id: &HandOut) -> String {
        format!("token {}", id.token)
    }

    fn features(&self) -> Features {
        let features = Features::new()
            .survives_restart()
            .random_access()
            .counts_attempts();
        match self.settings.keeps_letters {
            true => features.dead_letters(),
            false => features,
        }
    }

    fn lease(&self) -> Duration {
        self.settings.lease
    }

    fn worker(&self) -> ListWorker {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let random = RandomState::new().hash_one((SystemTime::now(), next));
        let name = format!("{}-{random:016x}", std::process::id());
        ListWorker {
            keys: self.keys.of(&name),
            name,
            sent: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            progress: Mutex::default(),
            figures: ListFigures::look_up(&System::name(self)),
        }
    }

    async fn connect(&self) -> Result<Link, RedisError> {
        self.redis.connect().await
    }

    async fn enter(
        &self,
        link: &mut Link,
        worker: &ListWorker,
        Entry { is_new, settled }: Entry<'_, HandOut>,
    ) -> Result<Memory, End<RedisError>> {
        worker.progress(|progress| {
            progress.after = (!is_new).then_some(0);
            progress.peers = Peers::default();
        });
        if !settled.is_empty() {
            // Sends the changes once more, which has no effect if they were applied. A server with
            // an earlier state has handed out no other element under these names.
            self.turn(link, worker, None, settled, 0).await?;
        }
        let (sent, heard) = worker.call();
        let highest = self.highest.load(Ordering::Relaxed);
        let answer: Vec<Value> = run(&ENTER, link, self.keys_of(worker), |command| {
            command.arg(&worker.name).arg(millis(self.settings.lease));
            command
                .arg(i32::from(is_new))
                .arg(heard)
                .arg(sent)
                .arg(highest);
        })
        .await?;
        let mut answer = answer.into_iter();
        let memory = match read(answer.next().unwrap_or(Value::Nil))? {
            0 => return Err(self.unknown(answer.next())?),
            3 => Memory::Earlier,
            _ => Memory::Whole,
        };
        worker.heard.store(sent, Ordering::Relaxed);
        Ok(memory)
    }

    async fn exchange(
        &self,
        link: &mut Link,
        worker: &ListWorker,
        changes: &Changes<HandOut>,
        most: usize,
    ) -> Result<Reply<HandOut>, End<RedisError>> {
        let (sent, heard) = worker.call();
        let turn = self.turn(link, worker, Some((sent, heard)), changes, most);
        let turn = turn.await?;
        worker.heard.store(sent, Ordering::Relaxed);
        worker.figures.show(|| ListFigures {
            waiting: turn.waiting,
        });
        let is_more = turn.after.is_some() || !turn.lost.is_empty() || !turn.unmet.is_empty();
        let rest = match (turn.waiting + turn.inbox, turn.is_blocked) {
            _ if is_more => Rest::More,
            (0, _) => Rest::Nothing,
            (_, true) if turn.inbox == 0 => Rest::Blocked,
            _ => Rest::More,
        };
        let out = turn.out.into_iter();
        let out = out.map(|(text, element)| Ok((number(&text)?, text, element)));
        let messages = turn.back.into_iter().map(Ok).chain(out);
        let messages = messages.map(|one| one.and_then(|one| self.handed(one)));
        let messages = messages.collect::<Result<Vec<_>, RedisError>>()?;
        if let Some(highest) = messages.iter().map(|handed| handed.id.token).max() {
            self.highest.fetch_max(highest, Ordering::Relaxed);
        }
        worker.progress(|progress| {
            progress.after = turn.after;
            for peer in turn.unmet {
                progress.peers.meet(&self.keys, peer);
            }
        });
        if !turn.lost.is_empty() {
            let given_back = self.give_back(link, worker, &turn.lost, &turn.lost_key);
            // The turn is done already, whatever the error says of this step.
            given_back.await.map_err(End::Failed)?;
        }
        Ok(Reply {
            messages,
            came: turn.came,
            rest,
        })
    }

    /// `BLMOVE` from the end of a list to the same end of it changes nothing, and waits while the
    /// list is empty. So a call that is dropped, or a process that is paused in it, loses no
    /// element: a script takes the element, in a round trip of its own.
    async fn wait(&self, link: &mut Option<Link>) -> Result<bool, RedisError> {
        let list = &*self.settings.list;
        let mut wait = cmd("BLMOVE");
        wait.arg(list)
            .arg(list)
            .arg("RIGHT")
            .arg("RIGHT")
            .arg(WAIT.as_secs());
        loop {
            let open = match &mut *link {
                Some(open) => open,
                None => link.insert(self.redis.connect_for(WAIT).await?),
            };
            match open.ask::<Value>(&wait).await {
                // Perhaps only the connection broke: a new one will show.
                Err(error) if error.breaks_connection() => {
                    *link = None;
                    sleep(PAUSE).await;
                }
                answer => return Ok(answer? != Value::Nil),
            }
        }
    }

    async fn reread(
        &self,
        link: &mut Link,
        worker: &ListWorker,
        ids: &[HandOut],
    ) -> Result<Vec<Option<(RawMessage, u32)>>, RedisError> {
        let page: Vec<Option<Vec<u8>>> = run(&REREAD, link, self.keys_of(worker), |command| {
            command.arg(self.settings.most_bytes);
            command.arg(ids.iter().map(|id| id.place).collect::<Vec<_>>());
        })
        .await?;
        let found = ids.iter().zip(page).map(|(id, element)| {
            let (mut message, past) = decode(element?.into());
            message.position = Some(id.token.to_string().into());
            Some((message, past.attempts))
        });
        Ok(found.collect())
    }

    async fn keep_letter(
        &self,
        link: &mut Link,
        worker: &ListWorker,
        id: &HandOut,
        why: &Why,
    ) -> Result<bool, RedisError> {
        let key = id.key.as_deref();
        let [head, headers] = letter_parts(key, why.headers());
        let kept: i64 = run(&LETTER, link, self.keys_of(worker), |command| {
            command
                .arg(&worker.name)
                .arg(id.place)
                .arg(tagged(key))
                .arg(&*head)
                .arg(&*headers);
        })
        .await?;
        Ok(kept != 0)
    }

    async fn leave(&self, link: &mut Link, worker: &ListWorker) -> Result<(), RedisError> {
        run::<i64>(&LEAVE, link, self.keys_of(worker), |command| {
            command.arg(&worker.name);
        })
        .await
        .map(drop)
    }
}

/// The answer to a turn.
struct Turn {
    waiting: u64,
    inbox: u64,
    is_blocked: bool,
    after: Option<Place>,
    /// How many of the returned elements have come again.
    came: usize,
    /// A worker that is gone, or nothing; and a key that it still owns.
    lost: String,
    lost_key: Bytes,
    /// Workers whose inboxes are needed.
    unmet: Vec<String>,
    /// Elements that are handed out again: place, token, element.
    back: Vec<(Place, Vec<u8>, Vec<u8>)>,
    /// Elements of a first hand-out: the token is the place.
    out: Vec<(Vec<u8>, Vec<u8>)>,
}

impl List {
    fn keys_of<'a>(&'a self, worker: &'a ListWorker) -> impl Iterator<Item = &'a Bytes> {
        self.keys.all().into_iter().chain(worker.keys.all())
    }

    /// One round trip, which reports these changes and asks for this many elements. Without a
    /// number it takes none.
    async fn turn(
        &self,
        link: &Link,
        worker: &ListWorker,
        call: Option<(u64, u64)>,
        changes: &Changes<HandOut>,
        most: usize,
    ) -> Result<Turn, End<RedisError>> {
        let settings = &self.settings;
        let (after, names, inboxes) = worker.progress(|Progress { after, peers, .. }| {
            let after = after.map(|place| place.to_string());
            (after.unwrap_or_default(), peers.names(), peers.inboxes())
        });
        let inboxes = inboxes.iter().filter(|_| call.is_some());
        let keys = self.keys_of(worker).chain(inboxes);
        let answer: Vec<Value> = run(&TURN, link, keys, |command| {
            command.arg(&worker.name).arg(millis(settings.lease));
            command
                .arg(settings.key.as_bytes())
                .arg(most)
                .arg(settings.most_bytes);
            command
                .arg(settings.most_sent)
                .arg(i32::from(settings.is_cyclic));
            match call {
                Some((sent, heard)) => {
                    command.arg(heard).arg(sent).arg(&after);
                    command.arg(names.len()).arg(&names);
                }
                None => {
                    command.arg("").arg("").arg("").arg(0);
                }
            }
            for settled in [&changes.done, &changes.gone] {
                command.arg(settled.len());
                for id in settled {
                    command.arg(id.place).arg(tagged(id.key.as_deref()));
                }
            }
            command.arg(changes.notes.len());
            for (id, attempts) in &changes.notes {
                command.arg(id.place).arg(attempts);
            }
            let again: Vec<Place> = changes.again.iter().map(|id| id.place).collect();
            command.arg(again.len()).arg(again);
        })
        .await?;
        let mut answer = answer.into_iter();
        match read(answer.next().unwrap_or(Value::Nil))? {
            0 => return Err(self.unknown(answer.next())?),
            2 => return Err(End::Missed),
            3 => return Err(End::Forgotten),
            _ => {}
        }
        let (waiting, inbox, is_blocked, after, came, lost, lost_key, unmet, back, out) =
            read(Value::Array(answer.collect()))?;
        let (after, lost_key): (String, Vec<u8>) = (after, lost_key);
        Ok(Turn {
            waiting,
            inbox,
            is_blocked,
            after: match &*after {
                "" => None,
                after => Some(number(after.as_bytes())?),
            },
            came,
            lost,
            lost_key: lost_key.into(),
            unmet,
            back,
            out,
        })
    }

    fn handed(
        &self,
        (place, text, element): (Place, Vec<u8>, Vec<u8>),
    ) -> Result<Handed<HandOut>, RedisError> {
        let (token, element) = (number(&text)?, Bytes::from(element));
        let key = key_of(&element);
        let (mut message, past) = decode(element);
        if key.is_none() {
            self.warn_of_no_key();
        }
        message.position = Some(text.into());
        let is_free = !past.is_suspect && !self.settings.exact_starts;
        Ok(Handed {
            id: HandOut { place, token, key },
            message,
            attempts: past.attempts,
            noted: past.attempts.saturating_add(u32::from(is_free)),
        })
    }

    /// Warns of the first element without a key, unless its order does not matter.
    fn warn_of_no_key(&self) {
        let Some(remedy) = self.settings.remedy_for_no_key() else {
            return;
        };
        if !self.is_keyless_known.swap(true, Ordering::Relaxed) {
            let list = self.name();
            tracing::warn!(
                target: "keylane",
                list,
                "an element has no key, so its order is not kept: {remedy}"
            );
        }
    }

    /// Returns why a server does not know a worker, by the last token of the server.
    fn unknown(&self, answer: Option<Value>) -> Result<End<RedisError>, RedisError> {
        let last: Token = read(answer.unwrap_or(Value::Nil))?;
        Ok(match last < self.highest.load(Ordering::Relaxed) {
            true => End::Forgotten,
            false => End::Lost,
        })
    }

    /// Gives the elements of a worker that is gone back to the list, in a step of its own, with the
    /// keys of that worker.
    async fn give_back(
        &self,
        link: &Link,
        worker: &ListWorker,
        lost: &str,
        key: &[u8],
    ) -> Result<(), RedisError> {
        let elements = self.expire(link, lost, key).await?;
        worker.progress(|progress| progress.peers.has_gone(lost));
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn number(text: &[u8]) -> Result<u64, RedisError> {
    let number = std::str::from_utf8(text).ok();
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| RedisError::new(ErrorKind::Other, "unexpected answer"))
}

fn read<T: FromRedisValue>(value: Value) -> Result<T, RedisError> {
    let read = from_redis_value(value);
    read.map_err(|error| RedisError::new(ErrorKind::Other, format!("unexpected answer: {error}")))
}
