//! A message as a broker or a store has it.

use std::time::SystemTime;

use bytes::Bytes;

/// A message that is not decoded yet.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawMessage {
    /// The key, if it has one. An empty key is a key.
    pub key: Option<Bytes>,
    /// The payload.
    pub payload: Bytes,
    /// Whether the message has no payload at all, which means that what its key names is gone. An
    /// empty payload is a payload.
    pub is_tombstone: bool,
    /// The producer's id of the message, if the source knows it. It is the same when the message
    /// comes again.
    pub id: Option<Bytes>,
    /// Names and values, in their order. A name may occur more than once. A value may be absent,
    /// which is not the same as empty.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// The number of the first attempt after this delivery, from 1, as far as the source counts
    /// attempts. Retries do not raise it; `Context::attempt` counts them.
    pub attempt: u32,
    /// The place of the message among those of its key, if it has one.
    pub version: Option<u64>,
    /// The time at which the message came into the source, by the source's clock, or the time at
    /// which it was made, if `is_producer_time`.
    pub enqueued_at: Option<SystemTime>,
    /// Whether `enqueued_at` is by the clock of the producer.
    pub is_producer_time: bool,
    /// The position in the source's own notation, if the source sets it: for functions of the
    /// source's crate that take part in its settlement.
    pub position: Option<Bytes>,
}

impl RawMessage {
    /// Returns a message with this payload and nothing else.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            payload: payload.into(),
            attempt: 1,
            ..Self::default()
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Returns the size of the key, the payload, the id and the headers, in bytes.
    pub fn size(&self) -> usize {
        let headers = self.headers.iter();
        let len = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        let headers = headers.map(|(name, value)| name.len() + len(value));
        len(&self.key) + self.payload.len() + len(&self.id) + headers.sum::<usize>()
    }

    /// Returns the value of the first header of this name. It is `None` for a header without a
    /// value too.
    pub fn header(&self, name: &str) -> Option<&Bytes> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|header| header.0 == name)?;
        value.as_ref()
    }
}
