//! The features of a source.

use std::time::Duration;

/// The features of a source, which the source declares.
///
/// The conformance suite of `keylane-testkit` checks the declared features, and checks that the
/// source refuses all others with a [`SourceError`](super::SourceError).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use keylane::source::Features;
///
/// let features = Features::new().nack().lease(Duration::from_secs(30));
/// assert!(features.has_nack() && !features.has_random_access());
/// assert_eq!(features.lease_of(), Some(Duration::from_secs(30)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    unordered: bool,
    nack: bool,
    survives_restart: bool,
    random_access: bool,
    counts_attempts: bool,
    dead_letters: bool,
    finite: bool,
    lease: Option<Duration>,
}

impl Features {
    /// Returns the features of a source that hands over the messages of a key in order, and can do
    /// nothing else.
    pub const fn new() -> Self {
        Self {
            unordered: false,
            nack: false,
            survives_restart: false,
            random_access: false,
            counts_attempts: false,
            dead_letters: false,
            finite: false,
            lease: None,
        }
    }

    /// Declares that the source does not hand over the messages of a key in order.
    #[must_use]
    pub const fn unordered(mut self) -> Self {
        self.unordered = true;
        self
    }

    /// Declares that a message that is given back comes again in the same generation.
    #[must_use]
    pub const fn nack(mut self) -> Self {
        self.nack = true;
        self
    }

    /// Declares that messages that the source held before its own restart come again.
    #[must_use]
    pub const fn survives_restart(mut self) -> Self {
        self.survives_restart = true;
        self
    }

    /// Declares that the source can read a position again:
    /// [`Source::reread`](super::Source::reread).
    #[must_use]
    pub const fn random_access(mut self) -> Self {
        self.random_access = true;
        self
    }

    /// Declares that the source counts attempts so that the count outlives the process, and hands
    /// the count over with a message: [`Delivery::attempts`](super::Delivery::attempts). A source
    /// whose server counts deliveries needs no more; a source that counts starts has a
    /// [`start_guard`](super::Source::start_guard).
    #[must_use]
    pub const fn counts_attempts(mut self) -> Self {
        self.counts_attempts = true;
        self
    }

    /// Declares that the source keeps dead letters itself:
    /// [`Source::dead_letter`](super::Source::dead_letter).
    #[must_use]
    pub const fn dead_letters(mut self) -> Self {
        self.dead_letters = true;
        self
    }

    /// Declares that the source comes to an end: [`Received::End`](super::Received::End).
    #[must_use]
    pub const fn finite(mut self) -> Self {
        self.finite = true;
        self
    }

    /// Declares that a message that is not settled comes again after this time, unless the source
    /// has [extended](super::Source::extend) its lease.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Returns whether the messages of a key come in order: see [`unordered`](Self::unordered).
    pub const fn is_ordered(&self) -> bool {
        !self.unordered
    }

    /// Returns whether messages that are given back come again: see [`nack`](Self::nack).
    pub const fn has_nack(&self) -> bool {
        self.nack
    }

    /// Returns whether the source survives its restart: see
    /// [`survives_restart`](Self::survives_restart).
    pub const fn does_survive_restart(&self) -> bool {
        self.survives_restart
    }

    /// Returns whether the source can read positions again: see
    /// [`random_access`](Self::random_access).
    pub const fn has_random_access(&self) -> bool {
        self.random_access
    }

    /// Returns whether the source counts attempts: see [`counts_attempts`](Self::counts_attempts).
    pub const fn does_count_attempts(&self) -> bool {
        self.counts_attempts
    }

    /// Returns whether the source keeps dead letters: see [`dead_letters`](Self::dead_letters).
    pub const fn keeps_dead_letters(&self) -> bool {
        self.dead_letters
    }

    /// Returns whether the source comes to an end: see [`finite`](Self::finite).
    pub const fn is_finite(&self) -> bool {
        self.finite
    }

    /// Returns the lease of the source, if it has one: see [`lease`](Self::lease).
    pub const fn lease_of(&self) -> Option<Duration> {
        self.lease
    }
}
