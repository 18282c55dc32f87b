//! Where a message came from.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use keylane::error::BoxError;
use keylane::source::RawMessage;

use crate::creation::CreationContext;

/// Where a message came from: the context in which it was made, its id and its times. Cheap to
/// clone.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub(crate) creation: CreationContext,
    pub(crate) id: Option<Bytes>,
    pub(crate) enqueued_at: Option<SystemTime>,
    pub(crate) decoded_at: Option<Instant>,
}

impl Origin {
    /// Returns an origin with this context and nothing else, for a message that comes from no
    /// source.
    pub fn new(creation: CreationContext) -> Self {
        Self {
            creation,
            ..Self::default()
        }
    }

    /// Returns the origin of a raw message.
    pub fn of(message: &RawMessage) -> Self {
        Self {
            creation: CreationContext::of(message),
            id: message.id.clone(),
            enqueued_at: message.enqueued_at,
            decoded_at: None,
        }
    }

    /// Returns the context in which the message was made.
    pub fn creation(&self) -> &CreationContext {
        &self.creation
    }
}

/// A message that knows its origin. Implement it for a message type of your own that keeps an
/// [`Origin`].
pub trait HasOrigin {
    /// Returns the origin of the message.
    fn origin(&self) -> Origin;
}

impl HasOrigin for RawMessage {
    fn origin(&self) -> Origin {
        Origin::of(self)
    }
}

impl<M: HasOrigin> HasOrigin for Arc<M> {
    fn origin(&self) -> Origin {
        (**self).origin()
    }
}

/// A decoded message with the origin of its raw message: see [`traced`].
#[derive(Clone, Debug, Default)]
pub struct Traced<M> {
    /// The message.
    pub message: M,
    /// Where it came from.
    pub origin: Origin,
}

impl<M> HasOrigin for Traced<M> {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }
}

impl<M> Deref for Traced<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.message
    }
}

/// Makes a decoder of `keylane::source::Source::decode` keep the origin of each message.
///
/// # Examples
///
/// ```
/// use keylane::error::BoxError;
/// use keylane::source::RawMessage;
/// use keylane_otel::{Traced, traced};
///
/// fn cents(raw: &RawMessage) -> Result<u64, BoxError> {
///     Ok(std::str::from_utf8(&raw.payload)?.parse()?)
/// }
///
/// // `source.decode(traced(cents))` is a source of `Traced<u64>`.
/// let decode = traced(cents);
/// let message: Traced<u64> = decode(&RawMessage::new("250"))?;
/// assert_eq!(*message, 250);
/// # Ok::<(), BoxError>(())
/// ```
pub fn traced<M, F>(
    decode: F,
) -> impl Fn(&RawMessage) -> Result<Traced<M>, BoxError> + Send + 'static
where
    F: Fn(&RawMessage) -> Result<M, BoxError> + Send + 'static,
{
    move |raw| {
        let message = decode(raw)?;
        let mut origin = Origin::of(raw);
        origin.decoded_at = Some(Instant::now());
        Ok(Traced { message, origin })
    }
}
