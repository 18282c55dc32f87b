//! What an error does to the others.

/// What follows from the first error, in the `try_` forms of [`KeyedStreamExt`](crate::KeyedStreamExt).
///
/// An error of the stream itself counts as much as one that a future answers with.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnError {
    /// Nothing new starts, what is in flight is dropped, and the error is the last answer. The default.
    ///
    /// In input order everything before the error is still answered first, and started if it was not. Should
    /// there be an error among those, then that one is the last answer.
    #[default]
    Stop,
    /// Every error comes out in its place, and everything else runs.
    GoOn,
}
