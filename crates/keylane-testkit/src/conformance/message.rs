//! The messages of the suite.

use bytes::Bytes;
use keylane::source::RawMessage;

use crate::events::{Id, Key};

/// Returns the message `id` of a key. Its payload is its id, so that it can be recognised.
pub(super) fn message(key: Key, id: Id) -> RawMessage {
    RawMessage::new(id.to_be_bytes().to_vec()).key(key.to_string())
}

/// Returns a payload of this size that begins with an id.
pub(super) fn payload(id: Id, size: usize) -> Bytes {
    let mut payload = id.to_be_bytes().to_vec();
    payload.resize(size.max(8), 0xa5);
    payload.into()
}

/// Returns the id of a message, if it is one of the suite's.
pub(super) fn id_of(message: &RawMessage) -> Option<Id> {
    let id = message.payload.get(..8)?;
    Some(Id::from_be_bytes(id.try_into().ok()?))
}

/// Returns the key of a message, if it is one of the suite's.
pub(super) fn key_of(message: &RawMessage) -> Option<Key> {
    let key = message.key.as_ref()?;
    std::str::from_utf8(key).ok()?.parse().ok()
}
