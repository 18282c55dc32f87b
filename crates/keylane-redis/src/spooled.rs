//! The messages of a spool.

use bytes::Bytes;
use keylane_source::RawMessage;
use keylane_spool::Spooled;

/// Returns the messages to write, each with its id from the spool.
pub(crate) fn messages(batch: &[Spooled]) -> Vec<RawMessage> {
    batch.iter().map(message).collect()
}

fn message(spooled: &Spooled) -> RawMessage {
    let mut message = RawMessage::new(spooled.payload.clone()).key(spooled.key.clone());
    let headers = spooled.headers.iter();
    message.headers = headers
        .map(|(name, value)| (name.to_owned(), Some(value.clone())))
        .collect();
    message.id = Some(Bytes::copy_from_slice(&spooled.id.to_bytes()));
    message
}
