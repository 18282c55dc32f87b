//! Reads one owned stream ahead.

use std::time::Duration;

use redis::{Value, cmd};
use tokio::time::sleep;

use super::answer::Failure;
use super::core::Flow;
use super::core::Seen;
use super::core::{Cursor, Next};
use super::id::EntryId;
use super::lease::{Found, Paged, Refused, StreamLease};
use super::worker::{Duty, Entry, News, PAUSE, Worker};
use crate::error::RedisError;
use crate::link::Link;

/// How long one wait for new entries takes. Then it asks for the group: it may have been removed,
/// or set back.
const WAIT: Duration = Duration::from_secs(2);

/// In a cluster a wait would hold up all others of its node, so it polls the stream: after this
/// time at first, and after twice as long each time.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// Most pending entries that are taken in one step of the server.
const PAGE: usize = 200;

/// Bytes after which such a step ends.
const PAGE_BYTES: usize = 4 << 20;

/// Why a stream is not read any more.
pub(super) enum Ended {
    /// There is another owner, or the stream has changed.
    Refused,
    Failed(RedisError),
}

pub(super) struct Reader<'a> {
    pub(super) worker: &'a Worker,
    pub(super) tenure: &'a StreamLease,
    pub(super) flow: &'a Flow,
    pub(super) round: u32,
}

impl Reader<'_> {
    /// Reads until it cannot. If it is dropped, the entries of its current read stay pending, and
    /// the next round reads them.
    pub(super) async fn run(self) -> Ended {
        let mut cursor = Cursor::new();
        let mut news = Waiter::default();
        let mut refused = None;
        let place = &self.tenure.place;
        loop {
            let room = self.flow.room().await;
            let step = match self.step(&mut cursor, room).await {
                Ok(step) => step,
                Err(Stop::Refused) => return Ended::Refused,
                Err(Stop::Failure(failure)) => {
                    match self.worker.bear(place, Duty::Own, failure).await {
                        Ok(()) => continue,
                        Err(error) => return Ended::Failed(error),
                    }
                }
            };
            self.worker.works(place, Duty::Own);
            // Only the wait fails, because the stream can be read.
            if let Some(error) = refused.take() {
                self.worker.fails(place, Duty::Wait, error);
            }
            match step {
                Step::More => news.found(),
                Step::Nothing => refused = news.wait(&self, cursor.last()).await,
            }
        }
    }

    async fn step(&self, cursor: &mut Cursor<Found>, room: usize) -> Result<Step, Stop> {
        let (entries, seen, step) = match cursor.next() {
            Next::Page {
                above,
                below,
                is_take_over,
            } => {
                let most = room.min(PAGE);
                let page = self
                    .tenure
                    .page(above, below, most, PAGE_BYTES, is_take_over);
                let Paged { page, gone, seen } = page.await??;
                let stream = self.tenure.place.number;
                self.worker.counters.add_gone(stream, gone);
                if page.end.is_some() {
                    self.warn_of_gone();
                }
                (cursor.paged(page), seen, Step::More)
            }
            Next::Read { above } => {
                let (batch, first_pending) = self.tenure.read(above, room).await??;
                let step = match batch.len() < room {
                    true => Step::Nothing,
                    false => Step::More,
                };
                let entries = cursor.read(batch, first_pending);
                if !cursor.is_new() {
                    self.worker.counters.add(|counts| counts.strays += 1);
                    tracing::debug!(
                        target: "keylane",
                        stream = %self.tenure.place.name(),
                        "a former owner has read entries: they are claimed back"
                    );
                    return Ok(Step::More);
                }
                (entries, None, step)
            }
        };
        self.hand_on(entries, cursor.last(), seen);
        Ok(step)
    }

    fn hand_on(&self, found: Vec<(EntryId, Found)>, last: EntryId, seen: Option<Seen>) {
        let newest = found.last().map(|(id, found)| Seen {
            id: *id,
            fields: found.fields.clone(),
        });
        let (place, origin) = (&self.tenure.place, &self.tenure.origin);
        let fields = &self.worker.config.settings.fields;
        let strays = &self.worker.config.strays;
        let entry = |(id, found): (EntryId, Found)| {
            let of_fields = found.fields.iter();
            let bytes = of_fields.map(|(name, value)| name.len() + value.len());
            strays.look(&place.stream, fields, &found.fields);
            let starts = &self.worker.starts;
            let attempts = starts.count(place.number, id, found.attempts);
            Entry {
                id,
                attempts,
                is_new: found.is_new,
                bytes: bytes.sum(),
                message: fields.decode(origin, id, attempts, found.fields),
            }
        };
        let entries: Vec<_> = found.into_iter().map(entry).collect();
        let bytes = entries.iter().map(|entry| entry.bytes).sum();
        let size = (entries.len(), bytes);
        self.flow.read(self.round, size, last, seen.or(newest));
        if !entries.is_empty() {
            self.worker.say(News::Entries {
                stream: place.number,
                round: self.round,
                entries,
            });
        }
    }

    /// Warns of all entries of a pass at once.
    fn warn_of_gone(&self) {
        let place = &self.tenure.place;
        if let Some(entries) = self.worker.counters.gone_to_say(place.number) {
            tracing::warn!(
                target: "keylane",
                stream = %place.name(),
                entries,
                "pending entries were deleted or trimmed before they were handled, and are lost: \
                 trim with `StreamBuilder::trim`, and not with `MAXLEN`, `XTRIM` or `XDEL`"
            );
        }
    }
}

enum Step {
    More,
    /// The stream has no more entries.
    Nothing,
}

enum Stop {
    Refused,
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Refused> for Stop {
    fn from(_: Refused) -> Self {
        Self::Refused
    }
}

/// Waits for new entries of a stream.
#[derive(Default)]
struct Waiter {
    link: Option<Link>,
    looks: u32,
}

impl Waiter {
    fn found(&mut self) {
        self.looks = 0;
    }

    /// Returns when there may be a new entry, or why the server refuses the wait.
    async fn wait(&mut self, reader: &Reader<'_>, above: EntryId) -> Option<String> {
        let worker = reader.worker;
        let redis = &worker.config.redis;
        if redis.is_cluster() {
            let look = FIRST_LOOK.saturating_mul(1 << self.looks.min(10));
            self.looks += 1;
            sleep(look.min(LAST_LOOK)).await;
            return None;
        }
        let place = &reader.tenure.place;
        let waited = async {
            let link = match &mut self.link {
                Some(link) => link,
                none => none.insert(redis.connect_for(WAIT).await?),
            };
            wait(link, &place.stream, above, WAIT.as_millis()).await
        };
        let waited = waited.await;
        let refused = match waited {
            Ok(()) => {
                worker.works(place, Duty::Wait);
                return None;
            }
            Err(Failure::Lasting(error)) => Some(error.to_string()),
            // The other connection shows whether the server is the cause.
            Err(Failure::Unable(error) | Failure::Failed(error)) => {
                tracing::debug!(
                    target: "keylane",
                    %error,
                    "the wait for new entries failed, will retry"
                );
                self.link = None;
                None
            }
        };
        sleep(PAUSE).await;
        refused
    }
}

/// Waits until the stream has an entry above this one, for at most this many milliseconds. Reads no
/// entry for the group.
async fn wait(link: &mut Link, stream: &[u8], above: EntryId, millis: u128) -> Result<(), Failure> {
    let mut command = cmd("XREAD");
    command
        .arg("COUNT")
        .arg(1)
        .arg("BLOCK")
        .arg(u64::try_from(millis).unwrap_or(1_000));
    command.arg("STREAMS").arg(stream).arg(above.to_string());
    let _: Value = link.ask(&command).await?;
    Ok(())
}
