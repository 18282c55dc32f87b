//! Times in the form that the databases use.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The year 9999, the latest time that a clock may show.
const LATEST_MS: u64 = 253_402_300_799_999;

pub(crate) fn from_millis(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis.min(LATEST_MS))
}

/// Seconds since 1970.
pub(crate) fn from_seconds(seconds: f64) -> SystemTime {
    from_millis((seconds * 1_000.0) as u64)
}

pub(crate) fn micros(time: Duration) -> i64 {
    // A thousand years, which every database can add to the current time.
    const MOST: u128 = 1_000 * 365 * 86_400 * 1_000_000;
    i64::try_from(time.as_micros().min(MOST)).expect("it is below the most")
}
