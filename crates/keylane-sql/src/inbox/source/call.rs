//! A call to the database that the source does not await at once.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::super::turn::{Answer, Found, RoundTrip};
use super::position::SqlPosition;
use crate::error::SqlError;

/// The first pause after a round trip that failed, and the longest.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

pub(super) type Call = JoinHandle<CallResult>;

/// The result of a call to the database.
pub(super) enum CallResult {
    RoundTrip(Box<RoundTrip>, Result<Answer, SqlError>),
    /// `None`: the claims have ended.
    Lanes(Result<Option<Vec<Found>>, SqlError>),
    /// The number of attempts, and whether the message is a letter now. False: the claims have
    /// ended.
    Letter(SqlPosition, u32, Result<bool, SqlError>),
}
