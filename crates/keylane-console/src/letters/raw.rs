//! What stores of raw messages share.

use keylane::Bytes;
use keylane::source::RawMessage;

use super::store::StoredLetter;

/// Returns a letter with what the message has.
pub(super) fn message(message: RawMessage) -> StoredLetter {
    StoredLetter {
        key: message.key,
        payload: message.payload,
        headers: message.headers.into_iter().map(pair).collect(),
        accepted_at: message.enqueued_at,
        message_id: message.id,
        version: message.version,
        ..StoredLetter::default()
    }
}

/// A header without a value is shown as an empty one.
fn pair((name, value): (String, Option<Bytes>)) -> (String, Bytes) {
    (name, value.unwrap_or_default())
}
