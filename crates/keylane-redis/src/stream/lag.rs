//! How far a group is behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_connector::lock;
use redis::Value;

use super::answer::{Failure, incomprehensible, number, tuple};
use super::lease::StreamLease;
use super::script::LAG;

/// How far a group is behind in a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lag {
    /// Entries that it has not read, if the server knows it.
    pub(super) unread: Option<u64>,
    pub(super) pending: u64,
    /// The age of the oldest entry that is not acked.
    pub(super) oldest: Duration,
}

/// The last answer for a stream. A handle: its clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LastLag(Arc<Mutex<Option<Lag>>>);

impl LastLag {
    pub(super) fn set(&self, lag: Option<Lag>) {
        *lock(&self.0) = lag;
    }

    pub(super) fn get(&self) -> Option<Lag> {
        *lock(&self.0)
    }
}

impl StreamLease {
    /// Asks how far the group is behind.
    pub(super) async fn lag(&self) -> Result<Lag, Failure> {
        let answer = self.run(&LAG, |_| {}).await?;
        let [unread, pending, age] = tuple(answer).ok_or_else(incomprehensible)?;
        let number = |value: &Value| number(value).ok_or_else(incomprehensible);
        Ok(Lag {
            unread: u64::try_from(number(&unread)?).ok(),
            pending: number(&pending)?.unsigned_abs(),
            oldest: Duration::from_millis(number(&age)?.unsigned_abs()),
        })
    }
}
