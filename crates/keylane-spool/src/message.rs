//! What goes into a spool, and what comes out of it.

use std::fmt;

use bytes::Bytes;

use super::headers::Headers;
use super::id::MessageId;

/// A message to push. Opaque bytes: the spool looks at the key only to keep its messages in order.
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
    /// What orders messages.
    pub key: Bytes,
    /// The message itself.
    pub payload: Bytes,
    /// What it carries beside.
    pub headers: Headers,
}

impl Message {
    /// A message without headers.
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

// Keys and payloads are the user's, and may be secret.
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
    /// The same each time this message is written.
    pub id: MessageId,
    /// What orders messages.
    pub key: Bytes,
    /// The message itself.
    pub payload: Bytes,
    /// What it carries beside.
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

    /// The message as it was pushed.
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
