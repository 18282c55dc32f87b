//! The dead letters in a stream: read, sent back, removed.

use std::fmt;

use bytes::Bytes;
use keylane_connector::{ConfigError, ErrorKind};
use redis::{Value, cmd};

use super::answer::{Fields, entries};
use super::id::EntryId;
use crate::error::RedisError;
use crate::link::Link;
use crate::names;
use crate::reconnecting_link::ReconnectingLink;
use crate::server::Redis;

/// The field that names the stream of the original entry.
const STREAM: &str = "keylane.stream";

/// The fields that make an entry a letter. A redriven one is without them.
const OURS: [&str; 7] = [
    STREAM,
    "keylane.entry",
    "keylane.time",
    "keylane.group",
    "keylane.attempts",
    "keylane.cause",
    "keylane.error",
];

/// The dead letters in a stream, as a source with
/// [`dead_letters`](crate::StreamBuilder::dead_letters) and a [`StreamSink`](crate::StreamSink)
/// write them.
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
///     println!("{}: {:?}", letter.id, letter.field("keylane.error"));
///     letters.redrive(&[letter.id]).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct StreamLetters {
    stream: Bytes,
    to: Option<Bytes>,
    link: ReconnectingLink,
}

/// A dead letter in a stream.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamLetter {
    /// Its entry.
    pub id: EntryId,
    /// All fields of the entry, in their order.
    pub fields: Vec<(Bytes, Bytes)>,
}

impl StreamLetter {
    /// Returns the value of the first field with this name.
    pub fn field(&self, name: &str) -> Option<&Bytes> {
        let mut fields = self.fields.iter();
        fields
            .find(|(of, _)| of == name.as_bytes())
            .map(|(_, value)| value)
    }

    /// Returns the fields of the original entry.
    pub fn original(&self) -> impl Iterator<Item = &(Bytes, Bytes)> {
        let is_ours = |name: &Bytes| OURS.iter().any(|ours| name == ours.as_bytes());
        self.fields.iter().filter(move |(name, _)| !is_ours(name))
    }
}

impl StreamLetters {
    /// Returns the letters in this stream. Nothing is asked of the server yet.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for a name that is empty or has no clear slot in a cluster.
    pub fn new(redis: &Redis, stream: impl Into<Bytes>) -> Result<Self, ConfigError> {
        let stream = stream.into();
        names::check("stream", &stream)?;
        Ok(Self {
            stream,
            to: None,
            link: ReconnectingLink::new(redis.clone()),
        })
    }

    /// Redrives letters to this stream, and not to the one that they name. Letters of a
    /// [`StreamSink`](crate::StreamSink) name none.
    #[must_use]
    pub fn to(mut self, stream: impl Into<Bytes>) -> Self {
        self.to = Some(stream.into());
        self
    }

    /// Returns at most `most` letters behind the one with the id `after`, or the oldest ones.
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
        self.range(&from, "+", most).await
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
        let id = id.to_string();
        Ok(self.range(&id, &id, 1).await?.pop())
    }

    async fn range(
        &self,
        from: &str,
        to: &str,
        most: usize,
    ) -> Result<Vec<StreamLetter>, RedisError> {
        let mut range = cmd("XRANGE");
        range.arg(&*self.stream).arg(from).arg(to);
        range.arg("COUNT").arg(most);
        let read = async |mut link: Link| link.ask::<Value>(&range).await;
        let read = entries(self.link.repeat(read).await?);
        let read = read.ok_or_else(|| RedisError::new(ErrorKind::Other, "unexpected answer"))?;
        let letter = |(id, fields): (EntryId, Fields)| StreamLetter { id, fields };
        Ok(read.into_iter().map(letter).collect())
    }

    /// Adds letters to the end of their original streams again, in this order and as they were, and
    /// removes them here. Returns how many of them were letters.
    ///
    /// Each is added before it is removed: if the process or the connection ends between the two,
    /// it is added again by the next call.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`]; also for a letter that does not name its stream: set one with
    /// [`to`](Self::to). The letters before it are redriven.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, some letters may be redriven, and one may be in both streams.
    pub async fn redrive(&self, ids: &[EntryId]) -> Result<u64, RedisError> {
        let mut redriven = 0;
        for id in ids {
            let Some(letter) = self.show(*id).await? else {
                continue;
            };
            let stream = self.to.as_ref().or(letter.field(STREAM));
            let stream = stream.ok_or_else(|| {
                let what = format!("the letter {id} does not name its stream: set one with `to`");
                RedisError::new(ErrorKind::Other, what)
            })?;
            let mut add = cmd("XADD");
            add.arg(&**stream).arg("*");
            for (name, value) in letter.original() {
                add.arg(&**name).arg(&**value);
            }
            let add = async |link: &mut Link| link.ask::<Value>(&add).await;
            self.link.with(add).await?;
            redriven += self.purge(&[*id]).await?;
        }
        Ok(redriven)
    }

    /// Removes letters for ever. Returns how many of them were letters.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`].
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, they may be removed: all of them, or none.
    pub async fn purge(&self, ids: &[EntryId]) -> Result<u64, RedisError> {
        if ids.is_empty() {
            return Ok(0);
        }
        let mut delete = cmd("XDEL");
        delete.arg(&*self.stream);
        for id in ids {
            delete.arg(id.to_string());
        }
        let delete = async |link: &mut Link| link.ask::<u64>(&delete).await;
        self.link.with(delete).await
    }
}

impl fmt::Debug for StreamLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamLetters")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
