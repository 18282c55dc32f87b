//! What the engine keeps of a message while its handler has it.

use crate::engine::Engine;
use crate::error::Failure;
use crate::rt::Arc;
use crate::types::Spec;
use crate::unwind::caught;

/// What stays with the engine while a handler runs.
///
/// It is memory for each handler in flight, so that a dispatcher which keeps nothing has a type of
/// its own, without a byte.
pub(crate) trait Kept<T: Spec>: Send {
    /// Takes the message, for another attempt, a dead letter or the report.
    fn take(&mut self) -> Option<T::Message>;

    /// The handler was dropped in the middle, and its first message is handed back: so are these.
    fn interrupt(&mut self, _engine: &Arc<Engine<T>>, _key: Option<&T::Key>) {}
}

/// What stays of a single message.
pub(crate) trait KeptMessage<T: Spec>: Kept<T> {
    /// The message for the handler, and what is kept of it.
    fn keep(
        engine: &Engine<T>,
        message: T::Message,
    ) -> (Result<T::Message, Failure<T::Error>>, Self);
}

/// No message is tried again, and none goes to a dead-letter sink.
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

/// A message, where the settings say that it is kept.
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
