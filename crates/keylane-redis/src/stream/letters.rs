//! The dead letters in a stream: read, redriven, purged.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use keylane_connector::{ConfigError, ErrorKind};
use redis::{Cmd, Value, cmd};

use super::answer::{Fields, entries};
use super::id::EntryId;
use super::letter::{self, OURS, StreamLetter, original};
use super::partition::{partition_of, share_slot};
use super::record::StreamFields;
use super::script::REDRIVE;
use crate::error::RedisError;
use crate::link::Link;
use crate::names;
use crate::reconnecting_link::ReconnectingLink;
use crate::server::Redis;

/// The dead letters in a stream, for an operator: those of a source with
/// [`dead_letters`](crate::StreamBuilder::dead_letters), and those that a
/// [`StreamSink`](crate::StreamSink) has written. Cheap to clone.
///
/// A redriven letter goes to the end of the stream from which it came, behind newer entries, under
/// a new id, with the fields of the original entry. It is added there and removed here in one step:
/// a crash, a lost answer, or another operator at the same time neither lose it nor add it twice.
/// Two kinds of letters take two steps, and may be added twice if something comes between these:
///
/// - in a cluster, those of a stream in another slot. Braces in the names put both in one slot, as
///   in `{shop}orders` and `{shop}dead`;
/// - those with more than 3,500 fields.
///
/// The user needs the rights to `XRANGE`, `XADD`, `XDEL`, `EVAL` and `EVALSHA` for these streams.
/// Without a right nothing is moved.
///
/// # Examples
///
/// ```no_run
/// use keylane_redis::{Redis, StreamLetters};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let letters = StreamLetters::new(&Redis::at("redis://localhost")?, "orders.dead")?;
/// for letter in letters.list(None, 100).await? {
///     println!("{}: {:?}: {}", letter.id, letter.message.key, letter.error);
///     if letter.cause == "timed out" {
///         letters.redrive(&[letter.id]).await?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StreamLetters {
    stream: Bytes,
    /// The streams to which all letters go; empty: each goes to the one that it names.
    to: Arc<[Bytes]>,
    fields: StreamFields,
    link: Arc<ReconnectingLink>,
}

impl StreamLetters {
    /// Returns the letters in this stream. It connects with the first call.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for a name that is empty or has no clear slot in a cluster.
    pub fn new(redis: &Redis, stream: impl Into<Bytes>) -> Result<Self, ConfigError> {
        let stream = stream.into();
        names::check("stream", &stream)?;
        Ok(Self {
            stream,
            to: Arc::default(),
            fields: StreamFields::new(),
            link: Arc::new(ReconnectingLink::new(redis.clone())),
        })
    }

    /// Sets which fields of an entry contain the parts of a message.
    #[must_use]
    pub fn fields(mut self, fields: StreamFields) -> Self {
        self.fields = fields;
        self
    }

    /// Redrives all letters to this stream, and not to those that they name. A letter that a
    /// [`StreamSink`](crate::StreamSink) has written names none.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for the stream of the letters, and for a name as [`new`](Self::new)
    /// does.
    pub fn to(self, stream: impl Into<Bytes>) -> Result<Self, ConfigError> {
        self.go_to(vec![stream.into()])
    }

    /// Redrives all letters to the partitions of this stream, `name:0`, `name:1` and so on. A
    /// letter goes to the one that [`partition_of`] returns for its key, and one without a key to
    /// the first.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for 0 partitions, and as [`to`](Self::to).
    pub fn to_partitions(self, name: &str, count: u32) -> Result<Self, ConfigError> {
        if count == 0 {
            return Err(ConfigError::zero("partitions"));
        }
        self.go_to((0..count).map(|n| format!("{name}:{n}").into()).collect())
    }

    fn go_to(mut self, streams: Vec<Bytes>) -> Result<Self, ConfigError> {
        for stream in &streams {
            names::check("to", stream)?;
        }
        if streams.contains(&self.stream) {
            let what = "is the stream of the letters: name another one";
            return Err(ConfigError::new("to", what));
        }
        self.to = streams.into();
        Ok(self)
    }

    /// Returns at most `most` letters behind the one with the id `after`, or the oldest ones, in
    /// the order in which they became letters. They are read as a whole, so `most` also bounds the
    /// memory that this takes.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`].
    ///
    /// # Cancel safety
    ///
    /// This changes nothing in the server.
    pub async fn list(
        &self,
        after: Option<EntryId>,
        most: usize,
    ) -> Result<Vec<StreamLetter>, RedisError> {
        let from = match after.map(EntryId::after) {
            None => "-".to_owned(),
            Some(Some(next)) => next.to_string(),
            Some(None) => return Ok(Vec::new()),
        };
        let found = self.range(&from, "+", most).await?.into_iter();
        let letter = |(id, entry): (EntryId, Fields)| letter::letter(id, &entry, &self.fields);
        Ok(found.map(letter).collect())
    }

    /// Returns the letter with this id; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`].
    ///
    /// # Cancel safety
    ///
    /// This changes nothing in the server.
    pub async fn show(&self, id: EntryId) -> Result<Option<StreamLetter>, RedisError> {
        let entry = self.entry(id).await?;
        Ok(entry.map(|entry| letter::letter(id, &entry, &self.fields)))
    }

    /// Moves letters to the ends of their streams, in this order and as they were. Returns how many
    /// of them were letters. If the connection breaks, this goes on with a new one, and the number
    /// may be too low by one.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`]; also for a letter that does not name its stream, unless
    /// [`to`](Self::to) sets one. The letters before it are redriven, and no others.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, some of the letters are redriven: each as a whole or not at all, except
    /// those that take [two steps](Self).
    pub async fn redrive(&self, ids: &[EntryId]) -> Result<u64, RedisError> {
        let mut redriven = 0;
        for id in ids {
            if let Some(entry) = self.entry(*id).await? {
                redriven += self.send_back(*id, &entry).await?;
            }
        }
        Ok(redriven)
    }

    /// Removes letters for ever. Returns how many of them were letters. If the connection breaks,
    /// this goes on with a new one, and the number may be too low.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`].
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, all of them may be removed, or none.
    pub async fn purge(&self, ids: &[EntryId]) -> Result<u64, RedisError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let mut delete = cmd("XDEL");
        delete.arg(&*self.stream);
        for id in ids {
            delete.arg(id.to_string());
        }
        let delete = async |mut link: Link| link.ask::<u64>(&delete).await;
        self.link.repeat(delete).await
    }

    async fn entry(&self, id: EntryId) -> Result<Option<Fields>, RedisError> {
        let id = id.to_string();
        let found = self.range(&id, &id, 1).await?.pop();
        Ok(found.map(|(_, entry)| entry))
    }

    async fn range(
        &self,
        from: &str,
        to: &str,
        most: usize,
    ) -> Result<Vec<(EntryId, Fields)>, RedisError> {
        let mut range = cmd("XRANGE");
        range.arg(&*self.stream).arg(from).arg(to);
        range.arg("COUNT").arg(most);
        let read = async |mut link: Link| link.ask::<Value>(&range).await;
        let found = entries(self.link.repeat(read).await?);
        found.ok_or_else(|| RedisError::new(ErrorKind::Other, "unexpected answer"))
    }

    async fn send_back(&self, id: EntryId, entry: &[(Bytes, Bytes)]) -> Result<u64, RedisError> {
        let original = original(entry);
        if original.is_empty() {
            // It was cut off before it became a letter.
            return Err(unfit(id, "has no field of its entry: purge it"));
        }
        let to = self.target(id, entry, &original)?;
        let step = async |link: Link| -> Result<Option<u64>, RedisError> {
            if link.is_cluster() && !share_slot(&self.stream, to) {
                return Ok(None);
            }
            let arguments = |command: &mut Cmd| {
                command.arg(2).arg(&*self.stream).arg(&**to);
                command.arg(id.to_string()).arg(&OURS[..]);
            };
            let moved: i64 = REDRIVE.run::<_, RedisError>(&link, arguments).await?;
            // It has too many fields for a script.
            Ok(u64::try_from(moved).ok())
        };
        match self.link.repeat(step).await? {
            Some(moved) => Ok(moved),
            None => self.send_in_two_steps(id, to, &original).await,
        }
    }

    async fn send_in_two_steps(
        &self,
        id: EntryId,
        to: &Bytes,
        original: &[(Bytes, Bytes)],
    ) -> Result<u64, RedisError> {
        let mut add = cmd("XADD");
        add.arg(&**to).arg("*");
        for (name, value) in original {
            add.arg(&**name).arg(&**value);
        }
        let add = async |link: &mut Link| link.ask::<Value>(&add).await;
        self.link.with(add).await?;
        self.purge(&[id]).await
    }

    /// Returns the stream to which a letter goes.
    fn target<'a>(
        &'a self,
        id: EntryId,
        entry: &'a [(Bytes, Bytes)],
        original: &[(Bytes, Bytes)],
    ) -> Result<&'a Bytes, RedisError> {
        let count = u32::try_from(self.to.len()).unwrap_or(u32::MAX);
        if count > 0 {
            let key = self.fields.message(original.iter().cloned()).key;
            let number = key.map_or(0, |key| partition_of(&key, count));
            return Ok(&self.to[number as usize]);
        }
        match letter::stream(entry) {
            None => Err(unfit(id, "does not name its stream: set one with `to`")),
            Some(stream) if *stream == self.stream => Err(unfit(
                id,
                "comes from the stream of the letters: set another one with `to`",
            )),
            Some(stream) => Ok(stream),
        }
    }
}

/// Returns the error for a letter that cannot be redriven.
fn unfit(id: EntryId, why: &str) -> RedisError {
    RedisError::new(ErrorKind::Other, format!("the dead letter {id} {why}"))
}

impl fmt::Debug for StreamLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamLetters")
            .field("stream", &self.stream)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}
