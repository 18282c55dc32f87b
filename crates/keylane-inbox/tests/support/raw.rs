//! Messages of the conformance suite in an inbox, and back: for each kind of inbox.

use keylane::source::RawMessage;
use keylane_inbox::{Letter, NewMessage};

/// Returns a message as an inbox accepts it. One without a key gets the header `no_key`: an inbox
/// has none without a key, and the suite has.
pub(crate) fn new_message(raw: RawMessage, no_key: &str) -> NewMessage {
    let mut message = NewMessage::new(raw.key.clone().unwrap_or_default(), raw.payload);
    if raw.key.is_none() {
        message = message.header(no_key, "");
    }
    let headers = raw.headers.into_iter();
    headers.fold(message, |message, (name, value)| {
        message.header(name, value.unwrap_or_default())
    })
}

/// Returns the message of a dead letter.
pub(crate) fn raw_message(letter: Letter) -> RawMessage {
    let message = letter.message;
    let mut raw = RawMessage::new(message.payload).key(message.key);
    let headers = message.headers.into_iter();
    raw.headers = headers
        .map(|header| (header.name, Some(header.value)))
        .collect();
    raw
}

/// Returns a message as an inbox can keep it: without tombstones, and headers have a value.
pub(crate) fn sayable(mut message: RawMessage) -> RawMessage {
    message.is_tombstone = false;
    for (_, value) in &mut message.headers {
        value.get_or_insert_default();
    }
    message
}
