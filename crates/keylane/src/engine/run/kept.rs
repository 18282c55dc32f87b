//! What the engine keeps of a message while its handler runs.

use keylane_rt::Arc;
use keylane_rt::unwind::caught;

use crate::engine::Engine;
use crate::engine::message::Obligation;
use crate::error::Failure;
use crate::types::Spec;

/// What stays with the engine while a handler runs.
///
/// Each job in flight has one. So a dispatcher that keeps nothing uses a type of its own, of size
/// zero.
pub(crate) trait Kept<T: Spec>: Send {
    /// The obligations of the messages that are in the handler with the first one.
    fn members(&self) -> impl Iterator<Item = &Obligation<T>> {
        std::iter::empty()
    }

    /// Takes the message, for another attempt, a dead letter or the report.
    fn take(&mut self) -> Option<T::Message>;

    /// The handler was dropped while it ran and its first message was handed back. Hands back the
    /// other ones.
    fn interrupt(&mut self, _engine: &Arc<Engine<T>>, _key: Option<&T::Key>) {}
}

/// What is kept of a single message.
pub(crate) trait KeptMessage<T: Spec>: Kept<T> {
    /// Splits a message into what the handler gets and what is kept.
    fn keep(
        engine: &Engine<T>,
        message: T::Message,
    ) -> (Result<T::Message, Failure<T::Error>>, Self);
}

/// Keeps nothing: no message is tried again, and none goes to a dead-letter sink.
#[derive(Debug)]
pub(crate) struct NotKept;

impl<T: Spec> Kept<T> for NotKept {
    #[inline]
    fn take(&mut self) -> Option<T::Message> {
        None
    }
}

impl<T: Spec> KeptMessage<T> for NotKept {
    #[inline]
    fn keep(_: &Engine<T>, message: T::Message) -> (Result<T::Message, Failure<T::Error>>, Self) {
        (Ok(message), Self)
    }
}

/// Keeps a clone, where the settings ask for one.
pub(crate) struct KeptIfSet<M>(pub(super) Option<M>);

impl<T: Spec> Kept<T> for KeptIfSet<T::Message> {
    #[inline]
    fn take(&mut self) -> Option<T::Message> {
        self.0.take()
    }
}

impl<T: Spec> KeptMessage<T> for KeptIfSet<T::Message> {
    #[inline]
    fn keep(
        engine: &Engine<T>,
        message: T::Message,
    ) -> (Result<T::Message, Failure<T::Error>>, Self) {
        match engine.settings.keep {
            None => (Ok(message), Self(None)),
            Some(keep) => {
                let copy = caught(|| keep(&message)).map_err(Failure::Panicked);
                (copy, Self(Some(message)))
            }
        }
    }
}
