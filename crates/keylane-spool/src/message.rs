//! New and accepted messages.

use std::fmt;

use bytes::Bytes;

use super::headers::Headers;
use super::id::MessageId;

/// A message to push. Its bytes are opaque: the spool uses only the key, to keep its messages in
/// order.
///
/// An empty key is a key like any other.
///
/// # Examples
///
/// ```
/// use keylane_spool::Message;
///
/// let message = Message::new("user-7", "{\"cents\":100}").header("content-type", "json");
/// assert_eq!(message.headers.len(), 1);
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The key: messages with equal keys keep their order.
    pub key: Bytes,
    /// The message itself.
    pub payload: Bytes,
    /// The headers of the message.
    pub headers: Headers,
}

impl Message {
    /// Creates a message without headers.
    pub fn new(key: impl Into<Bytes>, payload: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            payload: payload.into(),
            headers: Headers::default(),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.add(name, value);
        self
    }
}

// Keys and payloads belong to the user, and may be secret.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("key_bytes", &self.key.len())
            .field("payload_bytes", &self.payload.len())
            .field("headers", &self.headers)
            .finish()
    }
}

/// An accepted message, as the sink gets it.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub struct Spooled {
    /// The id of the message: the same each time the message is written.
    pub id: MessageId,
    /// The key: messages with equal keys keep their order.
    pub key: Bytes,
    /// The message itself.
    pub payload: Bytes,
    /// The headers of the message.
    pub headers: Headers,
}

impl Spooled {
    pub(super) fn new(id: MessageId, message: Message) -> Self {
        let Message {
            key,
            payload,
            headers,
        } = message;
        Self {
            id,
            key,
            payload,
            headers,
        }
    }

    /// Returns the message as it was pushed.
    pub fn into_message(self) -> Message {
        Message {
            key: self.key,
            payload: self.payload,
            headers: self.headers,
        }
    }
}

impl fmt::Debug for Spooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spooled")
            .field("id", &format_args!("{}", self.id))
            .field("key_bytes", &self.key.len())
            .field("payload_bytes", &self.payload.len())
            .field("headers", &self.headers)
            .finish()
    }
}
