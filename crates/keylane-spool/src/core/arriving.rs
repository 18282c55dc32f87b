//! A message on its way to the disk, and the push that waits for it.

use tokio::sync::oneshot;

use super::entry::Entry;
use crate::error::PushError;

/// Where a push waits for its message to be on disk.
pub(crate) type Waiter = oneshot::Receiver<Result<(), PushError>>;

/// An answer to send when the lock is free.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) to: oneshot::Sender<Result<(), PushError>>,
    pub(crate) result: Result<(), PushError>,
}

/// A message on its way to the disk.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) entry: Entry,
    /// The push that waits for the message. Until then it is not accepted. The caller may have
    /// gone.
    pub(super) waiter: Option<oneshot::Sender<Result<(), PushError>>>,
}
