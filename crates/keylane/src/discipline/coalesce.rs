//! Many requests for one key are one piece of work.

use std::fmt;

use keylane_rt::Arc;

/// Keeps at most one message of a key in flight and at most one waiting, for work that need not be
/// done twice: refreshing a cache, rebuilding an index, saving a document.
///
/// It is the known automaton of de-duplication, per key, and its four states fall out of the lane:
///
/// | state | the lane | a new message |
/// | --- | --- | --- |
/// | *Init* | does not exist | starts as soon as a runner takes it |
/// | *Process* | one in flight | waits: the lane goes to *Block* |
/// | *Block* | one in flight, one waits | meets the one that waits: *Decline* |
/// | *Decline* | as *Block* | is declined, replaces the one that waits, or is merged into it |
///
/// A message that has not started counts as waiting, so a burst for an idle key on a busy
/// dispatcher is one piece of work too: of the first message and the one that stands for the others
/// one starts, once a runner takes the first. So does one that is not to start yet
/// ([`send_when`](crate::Dispatcher::send_when)), unless others may [pass](crate::Delayed::Pass)
/// it. One that waits for its next attempt counts as in flight: it has started.
///
/// Each message settles exactly once, also one that is not handled: as coalesced. Its receipt
/// resolves with [`Declined`](crate::error::ReceiptError::Declined) or
/// [`Superseded`](crate::error::ReceiptError::Superseded); where
/// [`share_answers`](crate::Builder::share_answers) is set, it gets the answer of the message that
/// stands for it. A merged message settles with the one it was merged into, not before: what it
/// brought is part of that work.
///
/// # Examples
///
/// ```
/// use keylane::{Coalesce, Dispatcher};
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
    /// The message that waits stays, and the newcomer is declined. For messages that say no more
    /// than their key: "refresh this page". What a newcomer brings beyond that is lost.
    pub fn keep_first() -> Self {
        Self {
            how: How::KeepFirst,
        }
    }

    /// The newcomer takes the place of the message that waits, with its own time and lifetime. For
    /// messages that carry a state of which only the newest matters.
    pub fn keep_latest() -> Self {
        Self {
            how: How::KeepLatest,
        }
    }

    /// The two become one: `merge` is given the message that waits and the newcomer. A closure has
    /// to name their types: `|waiting: &Refresh, new: &Refresh| …`.
    ///
    /// It is called in the dispatcher's own tasks, so it must be short and must not block. By
    /// reference, so that nothing is lost if it panics: the message that waits stays, and the
    /// newcomer settles as failed with [`Failure::Panicked`](crate::error::Failure::Panicked). The
    /// merged message keeps the key of the two, whatever the key function says of it.
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
