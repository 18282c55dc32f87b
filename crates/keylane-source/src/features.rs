//! What a source can do.

use std::time::Duration;

/// What a source can do, declared by the source.
///
/// The conformance suite of `keylane-testkit` checks what is declared, and checks that what is not
/// is refused with a [`SourceError`](super::SourceError).
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
    /// A source that hands over the messages of a key in order, and can do nothing else.
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

    /// It does not hand over the messages of a key in order.
    #[must_use]
    pub const fn unordered(mut self) -> Self {
        self.unordered = true;
        self
    }

    /// What is given back comes again in the same generation.
    #[must_use]
    pub const fn nack(mut self) -> Self {
        self.nack = true;
        self
    }

    /// What it held before its own restart comes again.
    #[must_use]
    pub const fn survives_restart(mut self) -> Self {
        self.survives_restart = true;
        self
    }

    /// It can read a position again: [`Source::reread`](super::Source::reread).
    #[must_use]
    pub const fn random_access(mut self) -> Self {
        self.random_access = true;
        self
    }

    /// It counts attempts so that the count outlives the process, and hands it over with a message:
    /// [`Delivery::attempts`](super::Delivery::attempts). A source whose server counts when it hands
    /// over needs no more; one that counts starts has a [`start_guard`](super::Source::start_guard).
    #[must_use]
    pub const fn counts_attempts(mut self) -> Self {
        self.counts_attempts = true;
        self
    }

    /// It keeps dead letters itself: [`Source::dead_letter`](super::Source::dead_letter).
    #[must_use]
    pub const fn dead_letters(mut self) -> Self {
        self.dead_letters = true;
        self
    }

    /// It comes to an end: [`Received::End`](super::Received::End).
    #[must_use]
    pub const fn finite(mut self) -> Self {
        self.finite = true;
        self
    }

    /// What it holds for us comes again after this time, unless it is
    /// [extended](super::Source::extend).
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// See [`unordered`](Self::unordered).
    pub const fn is_ordered(&self) -> bool {
        !self.unordered
    }

    /// See [`nack`](Self::nack).
    pub const fn has_nack(&self) -> bool {
        self.nack
    }

    /// See [`survives_restart`](Self::survives_restart).
    pub const fn does_survive_restart(&self) -> bool {
        self.survives_restart
    }

    /// See [`random_access`](Self::random_access).
    pub const fn has_random_access(&self) -> bool {
        self.random_access
    }

    /// See [`counts_attempts`](Self::counts_attempts).
    pub const fn does_count_attempts(&self) -> bool {
        self.counts_attempts
    }

    /// See [`dead_letters`](Self::dead_letters).
    pub const fn keeps_dead_letters(&self) -> bool {
        self.dead_letters
    }

    /// See [`finite`](Self::finite).
    pub const fn is_finite(&self) -> bool {
        self.finite
    }

    /// See [`lease`](Self::lease).
    pub const fn lease_of(&self) -> Option<Duration> {
        self.lease
    }
}
