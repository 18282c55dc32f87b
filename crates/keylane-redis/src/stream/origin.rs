//! The origin of a message, in its id and its position.

use bytes::{Bytes, BytesMut};
use keylane_source::{Delivery, RawMessage};

use super::id::EntryId;

/// The common part of the ids of the messages of a stream's owner.
#[derive(Debug)]
pub(super) struct Origin {
    /// `<token> <stream>/`.
    front: Box<[u8]>,
    /// The index at which the stream begins.
    stream_at: usize,
}

impl Origin {
    pub(super) fn new(token: &str, stream: &[u8]) -> Self {
        Self {
            front: [token.as_bytes(), b" ", stream, b"/"].concat().into(),
            stream_at: token.len() + 1,
        }
    }

    /// Returns the position of an entry, `<token> <stream>/<entry>`, and the part after the token,
    /// which shares its memory.
    pub(super) fn position(&self, id: EntryId) -> (Bytes, Bytes) {
        // Two numbers of 64 bits, and the characters between them.
        let mut position = BytesMut::with_capacity(self.front.len() + 41);
        position.extend_from_slice(&self.front);
        id.put(&mut position);
        let position = position.freeze();
        let id = position.slice(self.stream_at..);
        (position, id)
    }
}

/// Returns the delivery of a message. The log shows the id of the message only if its producer has
/// set it: otherwise it is the entry, which the position has already.
pub(super) fn delivery<P>(message: RawMessage, position: P) -> Delivery<RawMessage, P> {
    let entry = message.position.as_deref().unwrap_or_default();
    let id = message.id.as_deref().unwrap_or_default();
    if entry.ends_with(id) {
        let bytes = message.size();
        return Delivery::new(message, position).bytes(bytes);
    }
    Delivery::raw(message, position)
}

/// Returns the fencing token in the position of a message.
pub(super) fn token(message: &RawMessage) -> Option<u64> {
    let position = message.position.as_deref()?;
    let end = position.iter().position(|byte| *byte == b' ')?;
    std::str::from_utf8(&position[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_the_token_and_the_entry() {
        let origin = Origin::new("17", b"my orders:3");
        let (position, id) = origin.position(EntryId::new(1_700, 0));
        assert_eq!(position, "17 my orders:3/1700-0");
        assert_eq!(id, "my orders:3/1700-0");
        let mut message = RawMessage::new("");
        assert_eq!(token(&message), None);
        message.position = Some(position);
        assert_eq!(token(&message), Some(17));
        message.id = Some(id);
        assert_eq!(delivery(message.clone(), 1).id, None);
        message.id = Some("order-4711".into());
        assert_eq!(delivery(message, 1).id.as_deref(), Some("order-4711"));
    }
}
