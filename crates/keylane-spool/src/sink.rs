//! The sink of a spool, and its errors.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

use super::message::Spooled;

/// The target of messages: a broker, a database, a service, an inbox.
///
/// An async closure over a `Vec<Spooled>` is a sink, and so is an `Inbox` of `keylane-inbox`.
///
/// # Rules for a sink
///
/// Write the batch, and return `Ok` only when all of it is safe. The messages of a key are in their
/// order and must be written in it. An unconfirmed batch is written again, with the same ids: after
/// an error that does not say which messages were written, a panic, a timeout, and a crash. A sink
/// that must not write twice remembers the [`id`](Spooled::id)s, or the largest id of each key.
///
/// Batches come one after the other unless
/// [`SpoolBuilder::in_flight`](super::SpoolBuilder::in_flight) allows several, which share no key.
///
/// A sink that keeps a handle of its own spool keeps it open: drop it, or close the spool.
///
/// # Cancel safety
///
/// The future of `write` is dropped at [`SpoolBuilder::timeout`](super::SpoolBuilder::timeout), when the
/// deadline of a [`close`](super::Spool::close) passes, when the last handle is dropped, and when
/// the runtime ends. The batch then counts as not written.
///
/// # Examples
///
/// ```
/// use keylane_spool::{SinkError, Spooled, SpoolSink, async_trait};
///
/// struct Log;
///
/// #[async_trait]
/// impl SpoolSink for Log {
///     async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
///         for (n, message) in batch.iter().enumerate() {
///             let text = std::str::from_utf8(&message.payload)
///                 .map_err(|error| SinkError::refused([n], error).with_first_written(n))?;
///             println!("{} {text}", message.id);
///         }
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sink for a spool",
    note = "a sink is an `Inbox`, or an async closure: \
            `|batch: Vec<Spooled>| async move {{ Ok::<(), SinkError>(()) }}`",
    note = "its future must be `Send`, and its error `SinkError` or a `std::error::Error`"
)]
#[async_trait]
pub trait SpoolSink: Send + Sync + 'static {
    /// Writes a batch. There is at least one message.
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError>;
}

#[async_trait]
impl<F, Fut, E> SpoolSink for F
where
    F: Fn(Vec<Spooled>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Into<SinkError> + Send,
{
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        self(batch.to_vec()).await.map_err(Into::into)
    }
}

#[async_trait]
impl<T: SpoolSink + ?Sized> SpoolSink for Arc<T> {
    async fn write(&self, batch: &[Spooled]) -> Result<(), SinkError> {
        (**self).write(batch).await
    }
}

/// The reason why a batch was not written, and which of its messages were.
///
/// Any [`std::error::Error`] converts into one with `?`: no message was written, try again later.
///
/// It is not an error type itself, because the conversion could not exist then.
///
/// # Examples
///
/// ```
/// use keylane_spool::SinkError;
///
/// let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
/// // The first three are safe, the others come again.
/// let error = SinkError::failed(timed_out).with_first_written(3);
/// # let _ = error;
/// ```
pub struct SinkError {
    text: String,
    written: Written,
    refused: Refused,
}

#[derive(Clone, Debug)]
enum Written {
    First(usize),
    These(Vec<usize>),
}

#[derive(Clone, Debug)]
enum Refused {
    None,
    Unnamed,
    These(Vec<usize>),
}

impl SinkError {
    /// Reports a failure that may pass: all messages that are not marked as written are written
    /// again, after a wait.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self {
            text: why.to_string(),
            written: Written::First(0),
            refused: Refused::None,
        }
    }

    /// Reports that the messages at these places of the batch are invalid and will never be
    /// accepted. [`SpoolBuilder::on_refused`](super::SpoolBuilder::on_refused) decides what happens to them.
    /// The others are written again, except those that are marked as written.
    ///
    /// Places that the batch does not have are ignored. So an empty list is the same as
    /// [`failed`](Self::failed).
    pub fn refused(places: impl IntoIterator<Item = usize>, why: impl fmt::Display) -> Self {
        Self {
            text: why.to_string(),
            written: Written::First(0),
            refused: Refused::These(places.into_iter().collect()),
        }
    }

    /// Reports that an unknown message of the batch is invalid. The messages of the batch are
    /// written again one by one, which finds it.
    pub fn refused_batch(why: impl fmt::Display) -> Self {
        Self {
            text: why.to_string(),
            written: Written::First(0),
            refused: Refused::Unnamed,
        }
    }

    /// Marks the first `count` messages of the batch as written and safe. They are not written
    /// again.
    #[must_use]
    pub fn with_first_written(mut self, count: usize) -> Self {
        self.written = Written::First(count);
        self
    }

    /// Marks the messages at these places of the batch as written and safe. They are not written
    /// again.
    ///
    /// If a message was written ahead of an earlier one of its key, the sink has reordered it. The
    /// spool cannot undo that; it counts it in [`Stats::out_of_order`](super::Stats::out_of_order).
    #[must_use]
    pub fn with_written(mut self, places: impl IntoIterator<Item = usize>) -> Self {
        self.written = Written::These(places.into_iter().collect());
        self
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns what to do with each of `len` messages. A message that is both written and refused
    /// counts as written: no message may be written twice.
    pub(super) fn fates(&self, len: usize) -> Fates {
        let mut fates = vec![Fate::Again; len];
        if let Refused::These(places) = &self.refused {
            mark(&mut fates, places, Fate::Refused);
        }
        match &self.written {
            Written::First(count) => fates[..(*count).min(len)].fill(Fate::Written),
            Written::These(places) => mark(&mut fates, places, Fate::Written),
        }
        let one_by_one = matches!(self.refused, Refused::Unnamed);
        let mut left = fates.iter_mut().filter(|fate| **fate == Fate::Again);
        if one_by_one
            && let Some(fate) = left.next()
            && left.next().is_none()
        {
            // No other message can be meant.
            *fate = Fate::Refused;
            return Fates {
                fates,
                one_by_one: false,
            };
        }
        Fates { fates, one_by_one }
    }
}

fn mark(fates: &mut [Fate], places: &[usize], fate: Fate) {
    for &place in places {
        if let Some(slot) = fates.get_mut(place) {
            *slot = fate;
        }
    }
}

/// What to do with a message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Written,
    Again,
    Refused,
}

/// What to do with a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fates {
    pub(super) fates: Vec<Fate>,
    /// The remaining messages are written again one by one.
    pub(super) one_by_one: bool,
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for SinkError {
    fn from(error: E) -> Self {
        Self::failed(error)
    }
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

keylane_rt::text_in_debug! { SinkError }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_its_text() {
        keylane_testkit::error_texts! {
            SinkError => SinkError::failed("no answer"), SinkError::refused([1], "too large");
        }
    }

    fn of(error: SinkError, len: usize) -> String {
        let Fates { fates, one_by_one } = error.fates(len);
        let letters = fates.iter().map(|fate| match fate {
            Fate::Written => 'w',
            Fate::Again => 'a',
            Fate::Refused => 'r',
        });
        letters.chain(one_by_one.then_some('1')).collect()
    }

    #[test]
    fn what_is_to_be_done_with_a_batch() {
        assert_eq!(of(SinkError::failed("x"), 3), "aaa");
        assert_eq!(of(SinkError::failed("x").with_first_written(2), 3), "wwa");
        assert_eq!(of(SinkError::failed("x").with_first_written(9), 3), "www");
        assert_eq!(of(SinkError::failed("x").with_written([2, 7]), 3), "aaw");
        assert_eq!(of(SinkError::refused([1], "x"), 3), "ara");
        assert_eq!(
            of(SinkError::refused([0], "x").with_first_written(1), 3),
            "waa"
        );
        assert_eq!(of(SinkError::refused_batch("x"), 3), "aaa1");
        assert_eq!(of(SinkError::refused_batch("x"), 1), "r");
        assert_eq!(
            of(SinkError::refused_batch("x").with_first_written(2), 3),
            "wwr"
        );
    }
}
