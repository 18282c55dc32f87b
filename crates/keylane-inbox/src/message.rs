//! New and stored messages.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;

/// A message to store.
///
/// The key decides the order: messages of one key are processed in the order in which they were
/// accepted. Key and payload are bytes, which the inbox does not interpret. An empty key is a key
/// like any other.
///
/// # Examples
///
/// ```
/// use keylane_inbox::NewMessage;
///
/// let message = NewMessage::new("user-7", r#"{"cents": 100}"#)
///     .id("order-4711")
///     .header("content-type", "application/json");
/// assert_eq!(&message.key[..], b"user-7");
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Messages with equal keys are processed one after the other.
    pub key: Bytes,
    /// The message itself.
    pub payload: Bytes,
    /// Names the message. A second one with the same id is absorbed.
    pub id: Option<MessageId>,
    /// Its place among the messages of its key. A second one of the key with the same version is
    /// absorbed.
    pub version: Option<u64>,
    /// Metadata about the payload.
    pub headers: Vec<Header>,
}

impl NewMessage {
    /// Creates a message without id, version and headers.
    pub fn new(key: impl Into<Bytes>, payload: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            payload: payload.into(),
            id: None,
            version: None,
            headers: Vec::new(),
        }
    }

    /// Sets the id, so that the message is stored once however often it is sent.
    pub fn id(mut self, id: impl Into<MessageId>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the place of the message among those of its key.
    pub fn version(mut self, version: u64) -> Self {
        self.version = Some(version);
        self
    }

    /// Adds a header. A name may come more than once.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push(Header::new(name, value));
        self
    }

    /// Returns the size that counts towards limits of bytes.
    pub(crate) fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(Header::bytes).sum::<usize>();
        let id = self.id.as_ref().map_or(0, |id| id.as_bytes().len());
        self.key.len() + self.payload.len() + headers + id
    }
}

// Keys and payloads belong to the user: they may be secret, and they may be large.
impl fmt::Debug for NewMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMessage")
            .field("key_bytes", &self.key.len())
            .field("payload_bytes", &self.payload.len())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// A stored message.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// The number of the message in its inbox. Later messages have higher numbers; none is used
    /// twice.
    pub sequence: u64,
    /// When it was accepted, by the wall clock of that moment, in whole milliseconds.
    pub accepted_at: SystemTime,
    /// Messages with equal keys are processed one after the other.
    pub key: Bytes,
    /// The message itself.
    pub payload: Bytes,
    /// The id that it was accepted with.
    pub id: Option<MessageId>,
    /// The version that it was accepted with.
    pub version: Option<u64>,
    /// The headers that it was accepted with, in their order.
    pub headers: Vec<Header>,
}

impl StoredMessage {
    /// Creates a stored message, for a store of your own.
    pub fn new(sequence: u64, accepted_at: SystemTime, message: NewMessage) -> Self {
        let NewMessage {
            key,
            payload,
            id,
            version,
            headers,
        } = message;
        Self {
            sequence,
            accepted_at,
            key,
            payload,
            id,
            version,
            headers,
        }
    }

    /// Returns the message as it was before it was stored.
    pub fn into_new(self) -> NewMessage {
        NewMessage {
            key: self.key,
            payload: self.payload,
            id: self.id,
            version: self.version,
            headers: self.headers,
        }
    }
}

impl fmt::Debug for StoredMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredMessage")
            .field("sequence", &self.sequence)
            .field("key_bytes", &self.key.len())
            .field("payload_bytes", &self.payload.len())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The name of a message across retries of its producer: 1 to 256 bytes.
///
/// # Examples
///
/// ```
/// use keylane_inbox::MessageId;
///
/// assert_eq!(MessageId::from("order-4711"), MessageId::from(b"order-4711".to_vec()));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(Bytes);

impl MessageId {
    /// The most bytes an id may have.
    pub const MAX_BYTES: usize = 256;

    /// Returns the bytes of the id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<MessageId> for Bytes {
    fn from(id: MessageId) -> Self {
        id.0
    }
}

impl From<Bytes> for MessageId {
    fn from(id: Bytes) -> Self {
        Self(id)
    }
}

impl From<Vec<u8>> for MessageId {
    fn from(id: Vec<u8>) -> Self {
        Self(id.into())
    }
}

impl From<String> for MessageId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<&str> for MessageId {
    fn from(id: &str) -> Self {
        Self(Bytes::copy_from_slice(id.as_bytes()))
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId(\"{}\")", self.0.escape_ascii())
    }
}

/// A name and a value beside the payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    /// Any text.
    pub name: String,
    /// Any bytes.
    pub value: Bytes,
}

impl Header {
    /// Creates a header.
    pub fn new(name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }

    fn bytes(&self) -> usize {
        self.name.len() + self.value.len()
    }
}

// A value may be a secret.
impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header")
            .field("name", &self.name)
            .field("value_bytes", &self.value.len())
            .finish()
    }
}
