//! The settings of an inbox.

use std::time::Duration;

/// The settings of an inbox.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_sql::Settings;
///
/// let settings = Settings::new().remember(Duration::from_secs(7 * 86_400));
/// # let _ = settings;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub(super) remember: Duration,
    pub(super) call_limit: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

impl Settings {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self {
            remember: Duration::from_secs(86_400),
            call_limit: Duration::from_secs(10),
        }
    }

    /// Sets how long the inbox remembers ids and versions to absorb repeats; 24 hours by default,
    /// by the clock of the database. They may stay longer:
    /// [`remove_old`](super::SqlInbox::remove_old) removes them. Their number has no limit: an id
    /// that is removed earlier would let a repeat in. An id takes about 350 bytes in PostgreSQL,
    /// and 170 in MariaDB.
    #[must_use]
    pub fn remember(mut self, time: Duration) -> Self {
        self.remember = time;
        self
    }

    /// Sets how long a call to the database may take, including the wait for a connection; 10
    /// seconds by default. A call that takes longer has failed, and it is not known whether it was
    /// done. It goes on at the server until the time limits of the server end it.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }
}
