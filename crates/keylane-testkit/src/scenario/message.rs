//! The messages of the tests.

use crate::events::{Id, Key};

/// A message with a key and an id, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The key, if it has one.
    pub key: Option<Key>,
    /// The id, unique in its test.
    pub id: Id,
}

impl Message {
    /// Creates the message `id` of `key`.
    pub fn new(key: impl Into<Option<Key>>, id: Id) -> Self {
        let key = key.into();
        Self { key, id }
    }
}

/// A message that a [`Producer`](super::Producer) can number.
pub trait Numbered {
    /// Creates the message `id` of `key`; `seq` is its place among the messages of its key, from 1.
    fn numbered(key: Option<Key>, seq: u64, id: Id) -> Self;

    /// Returns the id of the message.
    fn id(&self) -> Id;
}

impl Numbered for Message {
    fn numbered(key: Option<Key>, _seq: u64, id: Id) -> Self {
        Self { key, id }
    }

    fn id(&self) -> Id {
        self.id
    }
}
