//! The settings of leases.

use std::time::Duration;

use crate::error::OpenError;

/// The settings of leases. Every setting has a default.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane_leases::Settings;
///
/// let settings = Settings::new().most(10_000).call_limit(Duration::from_secs(2));
/// # let _ = settings;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(crate) most: usize,
    pub(crate) batch: usize,
    pub(crate) call_limit: Duration,
    pub(crate) look_again: Duration,
    pub(crate) owner: Option<String>,
}

impl Settings {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self {
            most: 100_000,
            batch: 1_000,
            call_limit: Duration::from_secs(5),
            look_again: Duration::from_millis(500),
            owner: None,
        }
    }

    /// Sets the most leases at a time, held or requested: 100,000 by default. At the limit
    /// [`try_acquire`](crate::Leases::try_acquire) returns an error, and
    /// [`acquire`](crate::Leases::acquire) waits.
    #[must_use]
    pub fn most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Sets the most leases in one call to the store: 1,000 by default.
    #[must_use]
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// Sets how long a call to the store may take: 5 seconds by default. A renewal may take no
    /// longer than a third of the shortest time to live in it, so that there is time for another
    /// one.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// Sets how long [`acquire`](crate::Leases::acquire) waits before it asks the store again for a
    /// lease that another process holds: 500 milliseconds by default, and up to a quarter more or
    /// less at random. It asks earlier if the lease would run out earlier.
    #[must_use]
    pub fn look_again(mut self, after: Duration) -> Self {
        self.look_again = after;
        self
    }

    /// Sets the name by which people recognise this process where they see who has a lease: in the
    /// store, and on the console. The name of the host and the id of the process by default. A
    /// random part behind it makes the owner unique, so two processes may have one name. Of the
    /// name, 47 characters are kept: [`Owner::named`](crate::Owner::named). An empty name is none.
    #[must_use]
    pub fn owner(mut self, name: impl Into<String>) -> Self {
        self.owner = Some(name.into()).filter(|name| !name.is_empty());
        self
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let zeros = [
            ("most", self.most == 0),
            ("batch", self.batch == 0),
            ("call_limit", self.call_limit.is_zero()),
            ("look_again", self.look_again.is_zero()),
        ];
        match zeros.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((setting, _)) => Err(OpenError::Zero(setting)),
            None => Ok(()),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}
