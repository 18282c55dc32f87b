//! The calls of a source, and how their effects are lost.

/// The answer of a call whose effect is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// Success.
    #[default]
    Silent,
    /// An error.
    Told,
}

/// A call of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// [`Source::open`](keylane::source::Source::open).
    Open,
    /// [`Source::receive`](keylane::source::Source::receive).
    Receive,
    /// [`Source::settle`](keylane::source::Source::settle).
    Settle,
    /// [`Source::confirm`](keylane::source::Source::confirm).
    Confirm,
    /// [`Source::release`](keylane::source::Source::release).
    Release,
    /// [`Source::extend`](keylane::source::Source::extend).
    Extend,
    /// [`Source::reread`](keylane::source::Source::reread).
    Reread,
    /// [`Source::dead_letter`](keylane::source::Source::dead_letter).
    DeadLetter,
    /// [`Source::close`](keylane::source::Source::close).
    Close,
}
