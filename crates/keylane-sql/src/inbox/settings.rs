//! How an inbox is kept.

use std::time::Duration;

/// How an inbox is kept.
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
    /// The defaults.
    pub fn new() -> Self {
        Self {
            remember: Duration::from_secs(86_400),
            call_limit: Duration::from_secs(10),
        }
    }

    /// How long ids and versions are remembered to absorb repeats; 24 hours by default, by the
    /// clock of the database. They may be remembered for longer: they go with
    /// [`remove_old`](super::SqlInbox::remove_old).
    #[must_use]
    pub fn remember(mut self, time: Duration) -> Self {
        self.remember = time;
        self
    }

    /// How long a call to the database may take, the wait for a connection included; 10 seconds by
    /// default. What takes longer has failed, and it is not known whether it was done. A call that
    /// is given up goes on at the server until its own time limits.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }
}
