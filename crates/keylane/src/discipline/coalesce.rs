//! Many requests for one key are one piece of work.

use std::fmt;

use keylane_rt::Arc;

/// A discipline that keeps at most one message of a key in flight and at most one waiting, for work
/// that need not be done twice: refreshing a cache, rebuilding an index, saving a document.
///
/// It is the known automaton of de-duplication, per key. Its four states follow from the lane:
///
/// | state | the lane | a new message |
/// | --- | --- | --- |
/// | *Init* | does not exist | starts as soon as a runner takes it |
/// | *Process* | one in flight | waits: the lane goes to *Block* |
/// | *Block* | one in flight, one waits | meets the one that waits: *Decline* |
/// | *Decline* | as *Block* | is declined, replaces the one that waits, or is merged into it |
///
/// A message that has not started counts as waiting. So a burst for an idle key on a busy
/// dispatcher is one piece of work too: once a runner takes the first message, either that message
/// or the one that stands for the others starts. A message that may not start yet
/// ([`send_when`](crate::Dispatcher::send_when)) counts as waiting too, unless others may
/// [pass](crate::discipline::Delayed::Pass) it. A message that waits for its next attempt counts as in flight:
/// it has started.
///
/// Each message settles exactly once; one that is not handled settles as coalesced. Its receipt
/// resolves with [`Declined`](crate::error::ReceiptError::Declined) or
/// [`Superseded`](crate::error::ReceiptError::Superseded); where
/// [`share_answers`](crate::Builder::share_answers) is set, it gets the answer of the message that
/// stands for it. A merged message settles together with the message it was merged into, not
/// before: its content is part of that work.
///
/// # Examples
///
/// ```
/// use keylane::Dispatcher;
/// use keylane::discipline::Coalesce;
///
/// struct Refresh { page: u64, reasons: Vec<&'static str> }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pages = Dispatcher::builder(|refresh: &Refresh| refresh.page)
///     .coalesce(Coalesce::merge(|waiting: &Refresh, new: &Refresh| Refresh {
///         page: new.page,
///         reasons: [&waiting.reasons[..], &new.reasons[..]].concat(),
///     }))
///     .spawn(|refresh: Refresh| async move { Ok::<_, std::io::Error>(refresh.reasons.len()) })?;
///
/// for reason in ["edited", "linked", "moved"] {
///     pages.send(Refresh { page: 7, reasons: vec![reason] }).await?;
/// }
/// let report = pages.drain().await;
/// assert_eq!(report.done + report.coalesced, 3);
/// # Ok(())
/// # }
/// ```
pub struct Coalesce<M> {
    pub(crate) how: How<M>,
}

pub(crate) enum How<M> {
    KeepFirst,
    KeepLatest,
    Merge(Merge<M>),
}

pub(crate) type Merge<M> = Arc<dyn Fn(&M, &M) -> M + Send + Sync>;

impl<M> Coalesce<M> {
    /// Keeps the message that waits, and declines the newcomer. For messages that say no more than
    /// their key: "refresh this page". Anything else in a newcomer is lost.
    pub fn keep_first() -> Self {
        Self {
            how: How::KeepFirst,
        }
    }

    /// Replaces the message that waits with the newcomer, with its own time and lifetime. For
    /// messages that carry a state of which only the newest matters.
    pub fn keep_latest() -> Self {
        Self {
            how: How::KeepLatest,
        }
    }

    /// Merges the two messages: `merge` gets the message that waits and the newcomer. A closure has
    /// to name their types: `|waiting: &Refresh, new: &Refresh| …`.
    ///
    /// It is called in the dispatcher's own tasks, so it must be short and must not block. It takes
    /// references, so that nothing is lost if it panics: the message that waits stays, and the
    /// newcomer settles as failed with [`Failure::Panicked`](crate::error::Failure::Panicked). The
    /// merged message keeps the key of the two, whatever the key function returns for it.
    pub fn merge(merge: impl Fn(&M, &M) -> M + Send + Sync + 'static) -> Self {
        Self {
            how: How::Merge(Arc::new(merge)),
        }
    }
}

impl<M> fmt::Debug for Coalesce<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.how {
            How::KeepFirst => "Coalesce::keep_first",
            How::KeepLatest => "Coalesce::keep_latest",
            How::Merge(_) => "Coalesce::merge",
        })
    }
}
