//! Streams as a sink: for messages, those of a spool, and dead letters.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use keylane_connector::{ConfigError, Why, letter_sinks};
use keylane_source::RawMessage;
use redis::{Cmd, Value, cmd};

use super::partition::partition_of;
use super::record::StreamFields;
use super::script::PUSH;
use crate::error::RedisError;
use crate::link::Link;
use crate::names;
use crate::reconnecting_link::ReconnectingLink;
use crate::server::Redis;

/// A script can pass at most this many fields to a command. An entry with more is added alone.
const MOST_FIELDS: usize = 3_500;

/// Most fields of all entries of a step: the server limits the size of a command.
const MOST_OF_A_STEP: usize = 250_000;

/// A message as fields, with its index in the batch.
type Encoded = (usize, Vec<(Bytes, Bytes)>);

/// Adds messages to a stream, or to the partitions of one, in the form that
/// [`StreamSource`](crate::StreamSource) reads. Cheap to clone.
///
/// It is also a sink for dead letters: for messages that cannot be decoded, and for raw messages
/// whose handler has failed. Such a letter may be written twice if its call is dropped, or its
/// answer lost. A letter that a source keeps
/// [in its own step](crate::StreamBuilder::dead_letters) is never written twice.
///
/// # Examples
///
/// ```no_run
/// use keylane::source::RawMessage;
/// use keylane_redis::{Redis, StreamSink};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::at("redis://localhost")?;
/// let orders = StreamSink::partitions(&redis, "orders", 16)?;
/// orders.push(&RawMessage::new(r#"{"amount": 12}"#).key("u-7")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StreamSink {
    streams: Arc<[Bytes]>,
    fields: StreamFields,
    link: Arc<ReconnectingLink>,
}

impl StreamSink {
    /// Creates a sink for this stream, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for a name that is empty or has no clear slot in a cluster.
    pub fn new(redis: &Redis, stream: impl Into<Bytes>) -> Result<Self, ConfigError> {
        Self::to(redis, vec![stream.into()])
    }

    /// Creates a sink for a stream in partitions: this many streams `name:0`, `name:1` and so on. A
    /// message goes to the one that [`partition_of`] returns for its key. A message without a key
    /// goes to the first.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] for 0 partitions, and for a name as [`new`](Self::new) does.
    pub fn partitions(redis: &Redis, name: &str, count: u32) -> Result<Self, ConfigError> {
        let streams = (0..count).map(|number| format!("{name}:{number}").into());
        Self::to(redis, streams.collect())
    }

    fn to(redis: &Redis, streams: Vec<Bytes>) -> Result<Self, ConfigError> {
        if streams.is_empty() {
            return Err(ConfigError::zero("partitions"));
        }
        streams
            .iter()
            .try_for_each(|stream| names::check("stream", stream))?;
        Ok(Self {
            streams: streams.into(),
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

    /// Adds a message. The server decides how durable it is: with `appendfsync always` it is on the
    /// disk when this returns.
    ///
    /// In a cluster the client sends a command again whose connection was closed before the answer
    /// came. So the message may be in the stream twice, with the same id.
    ///
    /// # Errors
    ///
    /// Returns [`RedisError`]. After [`Unreachable`](crate::ErrorKind::Unreachable) the message may
    /// be in the stream.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, the message may be in the stream.
    pub async fn push(&self, message: &RawMessage) -> Result<(), RedisError> {
        self.push_all(std::slice::from_ref(message)).await
    }

    /// Adds messages, those of each partition in their order. The messages of a partition are added
    /// as a whole or not at all, as long as they have at most 250,000 fields together and none has
    /// more than 3,500.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push). The messages of some partitions may be added, and so may the first
    /// ones of a partition with more fields than that.
    ///
    /// # Cancel safety
    ///
    /// As [`push`](Self::push).
    pub async fn push_all(&self, messages: &[RawMessage]) -> Result<(), RedisError> {
        self.write(messages).await.map_err(|(error, _)| error)
    }

    /// Adds messages. An error also contains the indexes of the messages that were written.
    async fn write(&self, messages: &[RawMessage]) -> Result<(), (RedisError, Vec<usize>)> {
        let mut of_each = vec![Vec::new(); self.streams.len()];
        for (place, message) in messages.iter().enumerate() {
            of_each[self.partition(message)].push(place);
        }
        let mut written = Vec::new();
        for (stream, places) in self.streams.iter().zip(of_each) {
            if places.is_empty() {
                continue;
            }
            let encoded = places
                .into_iter()
                .map(|place| (place, self.fields.encode(&messages[place])));
            for batch in batches(encoded) {
                match self.add(stream, &batch).await {
                    Ok(()) => written.extend(batch.iter().map(|(place, _)| *place)),
                    Err(error) => return Err((error, written)),
                }
            }
        }
        Ok(())
    }

    /// Adds entries in one step, with a single command. If the stream has moved, a cluster
    /// redirects it, unlike a transaction.
    async fn add(&self, stream: &Bytes, batch: &[Encoded]) -> Result<(), RedisError> {
        let add = async |link: &mut Link| -> Result<Value, RedisError> {
            if let [(_, fields)] = batch {
                let mut add = cmd("XADD");
                add.arg(&**stream).arg("*");
                put(&mut add, fields);
                return link.ask(&add).await;
            }
            let arguments = |command: &mut Cmd| {
                command.arg(1).arg(&**stream);
                for (_, fields) in batch {
                    command.arg(2 * fields.len());
                    put(command, fields);
                }
            };
            PUSH.run(link, arguments).await
        };
        self.link.with(add).await.map(drop)
    }

    fn partition(&self, message: &RawMessage) -> usize {
        let count = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        let key = message.key.as_deref();
        key.map_or(0, |key| partition_of(key, count) as usize)
    }

    async fn keep_letter(&self, message: &RawMessage, why: &Why) -> Result<(), RedisError> {
        let mut letter = message.clone();
        let ours = why.headers();
        // Replaces the fields of this kind from an earlier death.
        let is_theirs = |name: &str| ours.iter().all(|(ours, _)| ours != name);
        letter.headers.retain(|(name, _)| is_theirs(name));
        let ours = ours.into_iter();
        letter
            .headers
            .extend(ours.map(|(name, value)| (name, Some(value))));
        self.push(&letter).await
    }
}

/// Splits entries into batches of one step each, in this order.
fn batches(entries: impl Iterator<Item = Encoded>) -> Vec<Vec<Encoded>> {
    let mut batches: Vec<Vec<Encoded>> = Vec::new();
    // The room in the last batch.
    let mut room = 0;
    for entry in entries {
        let fields = entry.1.len();
        let is_wide = fields > MOST_FIELDS;
        match batches.last_mut() {
            Some(last) if fields <= room && !is_wide => {
                last.push(entry);
                room -= fields;
            }
            _ => {
                batches.push(vec![entry]);
                room = if is_wide { 0 } else { MOST_OF_A_STEP - fields };
            }
        }
    }
    batches
}

fn put(command: &mut Cmd, fields: &[(Bytes, Bytes)]) {
    for (name, value) in fields {
        command.arg(&**name).arg(&**value);
    }
}

letter_sinks!(StreamSink, keep_letter);

#[cfg(feature = "spool")]
mod spool {
    use keylane_connector::ErrorKind;
    use keylane_spool::{SinkError, SpoolSink, Spooled, async_trait};

    use super::StreamSink;
    use crate::spooled;

    /// A stream as the target of a [`Spool`](keylane_spool::Spool). The id of the spool is the id
    /// of the message, as its 24 bytes: a message that is written a second time, after a crash or a
    /// lost answer, has the same id.
    #[async_trait]
    impl SpoolSink for StreamSink {
        async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
            let written = StreamSink::write(self, &spooled::messages(batch)).await;
            written.map_err(|(error, written)| {
                let error = match error.kind() {
                    ErrorKind::TooLarge => SinkError::refused_batch(error),
                    _ => SinkError::failed(error),
                };
                error.with_written(written)
            })
        }
    }
}

impl fmt::Debug for StreamSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSink")
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_as_large_as_a_step_may_be() {
        let entry = |place, fields| (place, vec![(Bytes::new(), Bytes::new()); fields]);
        let sizes = |fields: &[usize]| {
            let entries = fields.iter().enumerate();
            let batches = batches(entries.map(|(place, fields)| entry(place, *fields)));
            let places = batches.iter().flatten().map(|(place, _)| *place);
            assert!(places.eq(0..fields.len()));
            batches.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1, 2, 3]), [3]);
        assert_eq!(sizes(&[1, MOST_FIELDS + 1, 1, 1]), [1, 1, 2]);
        assert_eq!(sizes(&[MOST_FIELDS + 1, MOST_FIELDS + 1]), [1, 1]);
        assert_eq!(sizes(&[MOST_FIELDS; 72]), [71, 1]);
        assert_eq!(sizes(&[MOST_OF_A_STEP + 7, 1]), [1, 1]);
    }
}
