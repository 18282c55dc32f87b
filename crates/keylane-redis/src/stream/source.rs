//! The source: the calls of the driver.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylane_connector::Why;
use keylane_leases::{Lease, Leases};
use keylane_source::{
    Deliveries, Delivery, Describer, Features, Generation, RawMessage, Received, Settlement,
    Source, SourceError, SourceLetter, StartGuard,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::answer::Failure;
use super::config::Config;
use super::held::HeldStreams;
use super::id::EntryId;
use super::lease::{Letter, Refused};
use super::membership::{Member, members_key};
use super::origin;
use super::partition::share_slot;
use super::position::StreamPosition;
use super::session::{Lasting, Session, default_leases};
use super::watch::StreamWatch;
use super::worker::{AGAIN_FOR, News, PAUSE};
use crate::error::RedisError;

/// How long a stream waits before it is read again because an entry was returned. If a stopping
/// source returns entries, it does not read them again.
const REWIND_AFTER: Duration = Duration::from_millis(500);

/// How often the source may connect again by itself, when it holds nothing. A connection that
/// breaks more often is a failure.
const AGAIN_EVERY: Duration = Duration::from_secs(60);

/// Streams of Redis or Valkey, as one member of a consumer group.
///
/// It hands over [`RawMessage`]s; [`decode`](Source::decode) makes your messages of them.
/// [`StreamFields`](crate::StreamFields) sets which fields of an entry contain the parts of a
/// message.
///
/// # What it does
///
/// - **A stream has one owner at a time**, under a lease: a group that shares one stream among
///   consumers has no order. The other members of the group stand by. To scale, use the dispatcher
///   within the process, and beyond that [partitions](crate::StreamBuilder::partitions). No other
///   program may read the streams as the same group.
/// - Streams are shared evenly among the members of the group. A new member gets some. A member
///   that stops leaves its own at once, and one that crashes when its lease has run out. The oldest
///   members keep their streams, except surplus ones.
/// - Pending entries of the group come first, in the order of the ids, whichever consumer has them.
/// - An entry is acked when it has settled. A former owner that wakes up late can neither ack nor
///   count anything: the server compares a fencing token first.
/// - Attempts are counted in the delivery count of the pending entry, which is one more than the
///   noted attempts.
/// - If an entry is returned while the source continues, the pending entries of its stream are read
///   again.
/// - A pending entry that was deleted or trimmed is acked, with a warning.
/// - A group or a stream that is gone is created again, with a warning: after a `FLUSHALL`, or a
///   failover to a server that did not have it yet. A stream that was created again under its name
///   is a new one, with any ids: messages of the old one ack none of its entries, and hide none.
///   The same applies to the other history of a replica that was promoted, if the user has the
///   right to `INFO replication`. If an operator removes a consumer, its pending entries come
///   again.
/// - A stream that cannot be read, because its key has another type or the user has no right to it,
///   fails alone: the others go on. `failed_parts` contains it with the message of the server, and
///   it is tried again every second. If acks of it are refused, the source is opened again, once
///   each time, and the stream stays with this process for as long as its lease lasts.
///   `failed_parts` also contains a missing right to wait in `XREAD`, to trim, or to look at the
///   members of the group. These hold up nothing: members that do not know each other own the free
///   streams.
/// - In a cluster the streams of a node that is away fail alone as well. Leases are in one slot,
///   and so all streams wait for the node that has it. A node that keeps its connections and does
///   not answer may hold up the client's calls to others, until the cluster has replaced it.
///
/// # Dead letters
///
/// With [`dead_letters`](crate::StreamBuilder::dead_letters) a letter has the fields of its entry,
/// and these:
///
/// | field | its value, as text |
/// | --- | --- |
/// | `keylane.stream`, `keylane.entry` | where the entry is |
/// | `keylane.time` | when it was added, in milliseconds since 1970 |
/// | `keylane.group` | the group that could not handle it |
/// | `keylane.attempts` | how many attempts its handler had |
/// | `keylane.cause` | one of `failed`, `panicked`, `timed out`, `undecodable`, `skipped`, … |
/// | `keylane.error` | the text of the error, 2,000 characters at most |
///
/// The letter is written and the entry is acked in one step, so there is one letter for each entry
/// also after a crash. In a cluster this requires that the stream of the letters is in the slot of
/// the entry's stream, by braces in their names; otherwise a crash between the two may write a
/// letter twice.
///
/// # Keys in the server
///
/// Beside each stream there is the key `{stream}:keylane:owner:<group>` with the token of its owner
/// and the consumer that it has created, and beside the first one
/// `{stream}:keylane:members:<group>`. If the name of a stream has braces of its own, these keys
/// contain the name once more. Leases are in keys that begin with
/// `{keylane-streams:<group>}:keylane:lease`, unless [`leases`](crate::StreamBuilder::leases) sets
/// others. Replication is asynchronous: a failover can lose acks and entries that the server has
/// confirmed.
///
/// A source has two connections, and one more for each stream that it owns, on which it waits for
/// new entries. In a cluster it polls each of these streams up to ten times a second instead.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use keylane::error::BoxError;
/// use keylane::source::RawMessage;
/// use keylane::{Dispatcher, OnExhausted, Retry};
/// use keylane_redis::{Redis, StreamSource};
///
/// # async fn bill(raw: RawMessage) -> Result<(), std::io::Error> { Ok(()) }
/// # #[tokio::main]
/// # async fn main() -> Result<(), BoxError> {
/// let redis = Redis::at("redis://localhost:6379/0")?;
/// let orders = Dispatcher::key_by_opt(|raw: &RawMessage| raw.key.clone())
///     .retry(Retry::exponential(Duration::from_millis(50)).max_attempts(5))
///     .on_exhausted(OnExhausted::AtSource)
///     .spawn(bill)?;
/// let source = StreamSource::builder(&redis, "billing")
///     .partitions("orders", 16)
///     .dead_letters("orders.dead")
///     .build()?;
/// let intake = orders.consume(source)?;
/// tokio::signal::ctrl_c().await?;
/// println!("{}", intake.stop().await);
/// # Ok(())
/// # }
/// ```
pub struct StreamSource {
    config: Arc<Config>,
    member: Member,
    leases: Option<Leases>,
    held: HeldStreams,
    inbox: VecDeque<News>,
    rewind_at: Option<Instant>,
    probe: Option<oneshot::Receiver<Result<(), RedisError>>>,
    session: Option<Session>,
    /// Leases of the session before, until the source is open again: there may be attempts under
    /// them here.
    kept: BTreeMap<u32, Arc<Lease>>,
    /// How long to keep them: after that, other processes may do better.
    kept_until: Instant,
    /// When the source connected again by itself.
    connected_again_at: Option<Instant>,
    /// It has begun to connect again by itself. The call that did so may have been dropped.
    connects_again: bool,
    /// The parts that fail, as far as the driver knows.
    failing: BTreeSet<String>,
}

impl StreamSource {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self {
            leases: config.settings.leases.clone(),
            held: HeldStreams::new(config.settings.exact_starts, config.settings.ttl),
            config,
            member: Member::default(),
            inbox: VecDeque::new(),
            rewind_at: None,
            probe: None,
            session: None,
            kept: BTreeMap::new(),
            kept_until: Instant::now(),
            connected_again_at: None,
            connects_again: false,
            failing: BTreeSet::new(),
        }
    }

    /// Returns the fencing token under which a message was handed out: the token of the stream's
    /// owner. It is higher than those of all earlier owners. The store that keeps the effects of
    /// messages must refuse a token that is lower than one it has seen for the key. So it refuses
    /// the writes of a paused process that is not the owner any more.
    pub fn token(message: &RawMessage) -> Option<u64> {
        origin::token(message)
    }

    /// Returns a handle to watch the source: its counters and its streams. Get it before the source
    /// is consumed. While something looks at the streams, the source asks the server every five
    /// seconds how far the group is behind in each of them. See
    /// [`StreamWatch`](crate::StreamWatch) for an example.
    pub fn watch(&self) -> StreamWatch {
        StreamWatch::new(&self.held.counters, &self.held.shown)
    }

    fn session(&mut self) -> Result<&mut Session, SourceError> {
        self.session.as_mut().ok_or_else(not_open)
    }

    /// Releases everything. The messages that were handed over are not ours any more.
    fn abandon(&mut self) {
        self.held.abandon();
        self.inbox.clear();
        self.rewind_at = None;
        self.probe = None;
        self.session = None;
    }

    /// Connects again after this failure, if nothing is in hand: then no message comes a second
    /// time, and it is no failure of the source.
    async fn survive(
        &mut self,
        failed: RedisError,
        into: &mut Deliveries<RawMessage, StreamPosition>,
    ) -> Result<(), SourceError> {
        let is_rare = self
            .connected_again_at
            .is_none_or(|at| at.elapsed() > AGAIN_EVERY);
        if !(is_rare && failed.breaks_connection() && self.held.is_free()) {
            return Err(SourceError::failed(failed));
        }
        self.connected_again_at = Some(Instant::now());
        tracing::info!(
            target: "keylane",
            source = %self.name(),
            error = %failed,
            "the connection was lost while no message was held, connects again"
        );
        self.connect_again(into).await
    }

    /// Opens the source again without a failure. May be dropped and called again.
    async fn connect_again(
        &mut self,
        into: &mut Deliveries<RawMessage, StreamPosition>,
    ) -> Result<(), SourceError> {
        self.connects_again = true;
        self.open().await?;
        // Those that still fail are reported again.
        for part in std::mem::take(&mut self.failing) {
            into.part_recovered(part);
        }
        Ok(())
    }

    /// Processes the news of the tasks.
    async fn follow_news(
        &mut self,
        into: &mut Deliveries<RawMessage, StreamPosition>,
    ) -> Result<Option<Received<StreamPosition>>, SourceError> {
        loop {
            if let Some(lost) = self.held.take_lost() {
                return Ok(Some(Received::Lost(lost)));
            }
            let next = match self.inbox.pop_front() {
                Some(news) => Some(news),
                None => self.session()?.news.try_recv().ok(),
            };
            let Some(news) = next else {
                return match self.session()?.is_well() {
                    true => Ok(None),
                    false => Err(SourceError::failed("a task of the source has ended")),
                };
            };
            match news {
                News::Gained(gained) => self.held.gain(*gained),
                News::Entries {
                    stream,
                    round,
                    entries,
                } => self.held.take_in(stream, round, entries),
                News::Lost(tenure) => self.held.lost(&tenure),
                News::Surplus(stream) => {
                    if let Some(generation) = self.held.revoke(stream) {
                        return Ok(Some(Received::Revoked(vec![generation])));
                    }
                }
                News::PartFailed { part, why } => {
                    self.failing.insert(part.clone());
                    into.part_failed(part, why);
                    return Ok(Some(Received::Messages));
                }
                News::PartRecovered(part) => {
                    self.failing.remove(&part);
                    into.part_recovered(part);
                    return Ok(Some(Received::Messages));
                }
                News::Failed(error) => self.survive(error, into).await?,
            }
        }
    }

    /// Waits until something has happened. Returns whether the server has answered that it is well.
    async fn wait(&mut self, probe_at: Instant) -> Result<bool, SourceError> {
        let now = Instant::now();
        if self.probe.is_none() && now >= probe_at {
            self.probe = Some(self.session()?.probe());
        }
        let probe_at = self.probe.is_none().then_some(probe_at);
        let shown = &self.held.shown;
        let shown_at = shown.due_at();
        let timers = [probe_at, self.rewind_at, shown_at];
        let wake_at = timers.into_iter().flatten().min();
        let session = self.session.as_mut().ok_or_else(not_open)?;
        let news = &mut session.news;
        let timer = async {
            match wake_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let probe = &mut self.probe;
        tokio::select! {
            biased;
            news = news.recv() => match news {
                Some(news) => self.inbox.push_back(news),
                None => return Err(SourceError::failed("the tasks of the source have ended")),
            },
            answer = answered(probe) => {
                match answer? {
                    Ok(()) => return Ok(true),
                    Err(error) => self.inbox.push_back(News::Failed(error)),
                }
            }
            () = shown.looked_at(), if shown_at.is_none() => {}
            () = timer => {}
        }
        Ok(false)
    }
}

/// Waits for an answer, and removes its receiver.
async fn answered<T>(probe: &mut Option<oneshot::Receiver<T>>) -> Result<T, SourceError> {
    let Some(receiver) = probe else {
        return std::future::pending().await;
    };
    let answer = receiver.await;
    *probe = None;
    answer.map_err(SourceError::failed)
}

impl Source for StreamSource {
    type Message = RawMessage;
    type Position = StreamPosition;

    fn name(&self) -> String {
        self.config.name()
    }

    fn describer(&self) -> Describer<StreamPosition> {
        let config = Arc::clone(&self.config);
        Describer::new(move |position: &StreamPosition| {
            let stream = config.settings.streams.get(position.stream());
            let stream = stream.map(|name| String::from_utf8_lossy(name));
            format!("{}/{}", stream.unwrap_or_default(), position.id)
        })
    }

    fn features(&self) -> Features {
        let features = Features::new()
            .survives_restart()
            .random_access()
            .counts_attempts();
        match &self.config.settings.letters {
            Some(_) => features.dead_letters(),
            None => features,
        }
    }

    fn validate(&self) -> Result<(), SourceError> {
        let settings = &self.config.settings;
        match &settings.letters {
            // A letter that fails would become a letter again, for ever.
            Some(letters) if settings.streams.contains(letters) => Err(SourceError::failed(
                "dead letters need their own stream: set `dead_letters` to one that is not read",
            )),
            _ => Ok(()),
        }
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        let now = Instant::now();
        let leases = self.held.leases();
        if !leases.is_empty() {
            self.kept = leases;
            self.kept_until = now + self.config.settings.ttl;
        } else if self.kept_until <= now {
            self.kept.clear();
        }
        self.abandon();
        let leases = match &self.leases {
            Some(leases) => leases.clone(),
            None => {
                let leases = default_leases(&self.config)?;
                self.leases.insert(leases).clone()
            }
        };
        let session = Session::open(Lasting {
            config: &self.config,
            starts: &self.held.starts,
            counters: &self.held.counters,
            shown: &self.held.shown,
            resumes: &self.held.resumes,
            member: &self.member,
            leases,
            kept: &mut self.kept,
        });
        self.session = Some(session.await.map_err(SourceError::failed)?);
        self.connects_again = false;
        Ok(())
    }

    async fn receive(
        &mut self,
        into: &mut Deliveries<RawMessage, StreamPosition>,
    ) -> Result<Received<StreamPosition>, SourceError> {
        let called_at = Instant::now();
        if self.connects_again {
            self.connect_again(into).await?;
        }
        let until = into.until();
        // So that the answer arrives in time.
        let probe_at = called_at + until.saturating_duration_since(called_at) / 2;
        loop {
            if let Some(received) = self.follow_news(into).await? {
                return Ok(received);
            }
            if let Some(session) = &self.session {
                let streams = &self.config.settings.streams;
                self.held.show_if_due(streams, &session.failing);
            }
            if self.rewind_at.is_some_and(|at| at <= Instant::now()) {
                self.rewind_at = None;
                let generations = self.held.rewind();
                if !generations.is_empty() {
                    return Ok(Received::Revoked(generations));
                }
            }
            if self.held.hand_over(into) {
                let lost = self.held.take_lost();
                return Ok(lost.map_or(Received::Messages, Received::Lost));
            }
            if self.wait(probe_at).await? {
                return Ok(Received::Idle);
            }
        }
    }

    async fn settle(&mut self, settled: &[Settlement<StreamPosition>]) -> Result<(), SourceError> {
        if self.held.settle(settled) {
            let soon = Instant::now() + REWIND_AFTER;
            self.rewind_at.get_or_insert(soon);
        }
        Ok(())
    }

    async fn confirm(&mut self) -> Result<(), SourceError> {
        self.held.told().await
    }

    async fn release(&mut self, generations: &[Generation]) -> Result<(), SourceError> {
        // Sends the settlements after the last confirmation, and the attempts at returned entries.
        self.held.told().await?;
        self.held.let_go(generations).await;
        Ok(())
    }

    async fn reread(
        &mut self,
        positions: &[StreamPosition],
        into: &mut Deliveries<RawMessage, StreamPosition>,
    ) -> Result<(), SourceError> {
        let mut wanted: BTreeMap<u32, Vec<&StreamPosition>> = BTreeMap::new();
        for position in positions {
            let held = self.held.of(position);
            if held.is_some_and(|held| held.owned.is_open(position.id)) {
                wanted.entry(position.stream).or_default().push(position);
            }
        }
        let fields = &self.config.settings.fields;
        let mut found = BTreeMap::new();
        for (stream, wanted) in wanted {
            let Some(held) = self.held.get(stream) else {
                continue;
            };
            let ids: Vec<EntryId> = wanted.iter().map(|position| position.id).collect();
            let origin = Arc::clone(&held.tenure.origin);
            let entries = match again(|| held.tenure.entries(&ids)).await {
                Ok(Ok(entries)) => entries,
                // Its entries that were handed over come again.
                Ok(Err(Refused)) | Err(Failure::Lasting(_) | Failure::Unable(_)) => {
                    self.held.lose(stream);
                    continue;
                }
                Err(failure) => return Err(failure.into()),
            };
            for (position, entry) in wanted.into_iter().zip(entries) {
                if let Some(entry) = entry {
                    let raw = fields.decode(&origin, position.id, position.attempts, entry);
                    found.insert((stream, position.id), raw);
                }
            }
        }
        for position in positions {
            if let Some(raw) = found.remove(&(position.stream, position.id)) {
                let delivery = Delivery::raw(raw, *position).generation(position.generation);
                into.push(delivery.attempts(position.attempts));
            }
        }
        Ok(())
    }

    async fn dead_letter(
        &mut self,
        letter: SourceLetter<StreamPosition>,
    ) -> Result<(), SourceError> {
        let settings = &self.config.settings;
        let Some(letters) = &settings.letters else {
            return Err(SourceError::unsupported("keep dead letters"));
        };
        let position = letter.position;
        let held = self.held.of(&position);
        let held = held.ok_or_else(|| SourceError::failed("the stream is no longer owned here"))?;
        if held.owned.has_letter(position.id) {
            return Ok(());
        }
        let why = Why::from(letter);
        let id = position.id;
        let mut fields: Vec<(String, Bytes)> = vec![
            ("keylane.stream".into(), held.tenure.place.stream.clone()),
            ("keylane.entry".into(), id.to_string().into()),
            ("keylane.time".into(), id.millis().to_string().into()),
            ("keylane.group".into(), settings.group.clone()),
        ];
        fields.extend(why.headers());
        let stream = &held.tenure.place.stream;
        let is_one_step = !self.config.redis.is_cluster() || share_slot(stream, letters);
        let mut kept = Ok(Letter::TooWide);
        if is_one_step {
            kept = held.tenure.letter(letters, id, &fields).await?;
        }
        match kept {
            Ok(Letter::Kept) => {
                self.held.letter_kept(&position);
                return Ok(());
            }
            Ok(Letter::TooWide) => {
                kept = held.tenure.letter_elsewhere(letters, id, &fields).await?;
            }
            Ok(Letter::NotOurs) | Err(Refused) => {}
        }
        if let Ok(Letter::Kept) = kept {
            return Ok(());
        }
        // Our entries of the stream come again.
        self.held.lose(position.stream);
        Err(SourceError::failed(
            "the entry is no longer pending here: it is neither acknowledged nor counted",
        ))
    }

    fn start_guard(&self) -> Option<Arc<dyn StartGuard<StreamPosition>>> {
        Some(Arc::clone(&self.held.starts) as Arc<dyn StartGuard<StreamPosition>>)
    }

    async fn close(&mut self) -> Result<(), SourceError> {
        let told = self.held.told().await;
        if let Some(mut session) = self.session.take() {
            session.stop();
            self.held.leave_all();
            // Streams that were about to come.
            session.news.close();
            while session.news.recv().await.is_some() {}
            session.ended().await;
        }
        self.abandon();
        self.kept.clear();
        told
    }
}

/// Repeats a call for a while if the server cannot do it now. It does nothing else meanwhile.
async fn again<T, F>(ask: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let until = Instant::now() + AGAIN_FOR;
    loop {
        match ask().await {
            Err(Failure::Unable(error)) if Instant::now() < until => {
                tracing::warn!(
                    target: "keylane",
                    %error,
                    "the server cannot execute the command now, will retry"
                );
                sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

impl Drop for StreamSource {
    fn drop(&mut self) {
        // The streams of a source that was dropped are free at once, so the source should not count
        // as a member any more.
        if let Some(session) = &self.session
            && let Ok(runtime) = Handle::try_current()
        {
            let settings = &self.config.settings;
            let key = members_key(&settings.streams[0], &settings.group);
            let (member, link) = (self.member.clone(), session.link.clone());
            runtime.spawn(async move { member.leave(&link, &key).await });
        }
        // The driver's guard may live on, and has its own handles of the leases.
        self.abandon();
        self.kept.clear();
    }
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSource")
            .field("settings", &self.config.settings)
            .finish_non_exhaustive()
    }
}

fn not_open() -> SourceError {
    SourceError::failed("the source is not open")
}
