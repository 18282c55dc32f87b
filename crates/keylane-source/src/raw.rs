//! A message as a broker or a store has it.

use std::time::SystemTime;

use bytes::Bytes;

/// A message that is not decoded yet.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawMessage {
    /// The key, if it has one. An empty key is a key.
    pub key: Option<Bytes>,
    /// What was sent.
    pub payload: Bytes,
    /// It has no payload at all, which says that what its key names is gone. An empty payload is a
    /// payload.
    pub is_tombstone: bool,
    /// What its producer calls it, if the source knows that: the same when it comes again.
    pub id: Option<Bytes>,
    /// Names and values beside it, in their order. A name may be there more than once.
    pub headers: Vec<(String, Bytes)>,
    /// Which attempt is the first one after this delivery, from 1, as far as the source counts them.
    /// Retries do not raise it: `Context::attempt` does count them.
    pub attempt: u32,
    /// Its place among the messages of its key, if it has one.
    pub version: Option<u64>,
    /// When it came into the source, by the source's clock.
    pub enqueued_at: Option<SystemTime>,
    /// Its position as the source writes it down, if it does: for functions of the source's crate
    /// that take part in its settlement.
    pub position: Option<Bytes>,
}

impl RawMessage {
    /// A message with a payload, and nothing else.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            payload: payload.into(),
            attempt: 1,
            ..Self::default()
        }
    }

    /// Its key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Bytes of its key, payload, id and headers.
    pub fn size(&self) -> usize {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.len() + value.len());
        let len = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        len(&self.key) + self.payload.len() + len(&self.id) + headers.sum::<usize>()
    }

    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&Bytes> {
        let mut headers = self.headers.iter();
        headers
            .find(|header| header.0 == name)
            .map(|(_, value)| value)
    }
}
