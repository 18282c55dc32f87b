//! The policy for messages after their last attempt.

use std::fmt;
use std::sync::Arc;

pub(crate) use keylane_source::{DeadLetter, DeadLetterSink};

pub(crate) type Sink<K, M, E> = Arc<dyn DeadLetterSink<K, M, E>>;

/// The policy for a message, and for its key, after the last attempt.
#[non_exhaustive]
pub enum OnExhausted<K, M, E> {
    /// Settles the message as failed and goes on with the key. The default.
    ///
    /// Traces of the message are the `tracing` warning `an attempt failed`; a count, in
    /// [`Report::discarded`](crate::Report::discarded) and
    /// [`Stats::discarded`](crate::watching::Stats::discarded); the event
    /// [`Event::Discarded`](crate::watching::Event::Discarded); and, if there is a receipt,
    /// [`ReceiptError::Failed`](crate::error::ReceiptError::Failed).
    Discard,
    /// Gives the message to the sink; the key goes on when the sink has accepted it.
    DeadLetter(Arc<dyn DeadLetterSink<K, M, E>>),
    /// Lets the source of the message keep the dead letter, if it has the
    /// [feature](keylane_source::Features::dead_letters); the key goes on when the letter is
    /// durable there. A message that was sent directly stops its key instead, as with
    /// [`Halt`](Self::Halt).
    AtSource,
    /// Stops the key: later messages stay parked until `resume`, `skip` or `replace` of
    /// [`LaneControl`](crate::LaneControl). This is the policy for payments. A keyless message has
    /// no lane to stop: if it comes from a source, it is held, and its source gets it back when the
    /// intake ends; otherwise it is discarded. A source that counts attempts delivers it with its
    /// attempts used up, so it is held again, until another policy takes it.
    Halt,
}

impl<K, M, E> OnExhausted<K, M, E> {
    /// Returns an [`OnExhausted::DeadLetter`] with this sink.
    pub fn dead_letter(sink: impl DeadLetterSink<K, M, E> + 'static) -> Self {
        Self::DeadLetter(Arc::new(sink))
    }
}

impl<K, M, E> fmt::Debug for OnExhausted<K, M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discard => "Discard",
            Self::DeadLetter(_) => "DeadLetter(..)",
            Self::AtSource => "AtSource",
            Self::Halt => "Halt",
        })
    }
}
