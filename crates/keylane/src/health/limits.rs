//! For how long something may go wrong.

use std::time::Duration;

/// For how long something may go wrong before it is a [`HealthReason`](super::HealthReason).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane::watching::HealthLimits;
///
/// let limits = HealthLimits::new().failing(Duration::from_secs(120));
/// # let _ = limits;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthLimits {
    pub(super) failing: Duration,
    pub(super) full: Duration,
    pub(super) blocked: Duration,
}

impl Default for HealthLimits {
    fn default() -> Self {
        Self::new()
    }
}

impl HealthLimits {
    /// Returns the defaults.
    pub const fn new() -> Self {
        Self {
            failing: Duration::from_secs(30),
            full: Duration::from_secs(30),
            blocked: Duration::from_secs(300),
        }
    }

    /// Sets how long a source may fail; 30 seconds by default. A source that was never open is not
    /// ready from the start.
    #[must_use]
    pub const fn failing(mut self, limit: Duration) -> Self {
        self.failing = limit;
        self
    }

    /// Sets how long a dispatcher may be full while nothing settles; 30 seconds by default. It must
    /// be longer than a handler usually takes.
    #[must_use]
    pub const fn full(mut self, limit: Duration) -> Self {
        self.full = limit;
        self
    }

    /// Sets how long a handler may block its thread; 5 minutes by default. A process whose handler
    /// blocks for longer is not live.
    #[must_use]
    pub const fn blocked(mut self, limit: Duration) -> Self {
        self.blocked = limit;
        self
    }
}
