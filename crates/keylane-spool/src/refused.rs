//! The handling of messages that the sink will never accept.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

use super::message::Spooled;

/// Any error, boxed: the error of a [`DeadLetters`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// A message that the sink has refused as invalid.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Refused {
    /// The message.
    pub message: Spooled,
    /// The reason that the sink gave.
    pub reason: String,
}

/// The target of refused messages: a table, a topic, a file. An async closure over a [`Refused`]
/// implements it.
///
/// The next message of the key is written only after the letter was accepted, so `accept` must
/// return `Ok` only when the letter is safe. After an error, a panic or a
/// [`timeout`](super::SpoolBuilder::timeout) the same letter is offered again, after a
/// [wait](super::SpoolBuilder::backoff) of its own; the other keys go on meanwhile.
///
/// Letters come one at a time, in the order of the refusals, while batches are written. Messages
/// behind one stay in memory, and count towards the limits. A letter may come twice, as a message
/// may be written twice; its id shows the repeat.
///
/// # Cancel safety
///
/// The future of `accept` is dropped in the same cases as that of
/// [`SpoolSink::write`](super::SpoolSink::write). The letter then counts as not accepted.
///
/// # Examples
///
/// ```
/// use keylane_spool::{BoxError, DeadLetters, Refused, async_trait};
///
/// struct Stderr;
///
/// #[async_trait]
/// impl DeadLetters for Stderr {
///     async fn accept(&self, letter: &Refused) -> Result<(), BoxError> {
///         eprintln!("{}: {}", letter.message.id, letter.reason);
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// Stores the letter. An error means "not stored".
    async fn accept(&self, letter: &Refused) -> Result<(), BoxError>;
}

#[async_trait]
impl<F, Fut, E> DeadLetters for F
where
    F: Fn(Refused) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Into<BoxError> + Send,
{
    async fn accept(&self, letter: &Refused) -> Result<(), BoxError> {
        self(letter.clone()).await.map_err(Into::into)
    }
}

/// What happens to a message that the sink has refused, and to its key.
#[non_exhaustive]
#[derive(Clone, Default)]
pub enum OnRefused {
    /// Halts the key: the message and all later ones of its key wait until
    /// [`Spool::resume`](super::Spool::resume) or [`Spool::skip`](super::Spool::skip). They stay in
    /// memory, and count towards the limits. The default: no message is lost.
    #[default]
    Halt,
    /// Gives it to the dead letters. Its key goes on when they have accepted it, the other keys at
    /// once.
    DeadLetter(Arc<dyn DeadLetters>),
}

impl OnRefused {
    /// Returns [`OnRefused::DeadLetter`] for these dead letters.
    pub fn dead_letter(letters: impl DeadLetters) -> Self {
        Self::DeadLetter(Arc::new(letters))
    }
}

impl fmt::Debug for OnRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Halt => "Halt",
            Self::DeadLetter(_) => "DeadLetter(..)",
        })
    }
}
