//! For how long a source holds the messages that it has handed over.

use std::time::Duration;

use tokio::time::Instant;

/// The time for which the messages of a source stay with this process: others get them after it,
/// unless the source extends it. As [`StartGuard::hold`](crate::StartGuard::hold) returns it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane::source::Hold;
/// use tokio::time::Instant;
///
/// let (lasts, sent) = (Duration::from_secs(9), Instant::now());
/// let hold = Hold::new(lasts, sent + lasts);
/// assert_eq!(hold.extended_at(), Some(sent));
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// How long it lasts from one extension on: by the clock of this process, which may count less
    /// than the server.
    pub lasts: Duration,
    /// When it ends. Of parts that are held for themselves, the first one that ends.
    pub until: Instant,
}

impl Hold {
    /// Creates a hold that lasts this long from each extension, and now ends at this time.
    pub fn new(lasts: Duration, until: Instant) -> Self {
        Self { lasts, until }
    }

    /// Returns when it was last extended: when the call was sent that has succeeded. `None` for a
    /// time before the clock has begun.
    pub fn extended_at(&self) -> Option<Instant> {
        self.until.checked_sub(self.lasts)
    }
}
