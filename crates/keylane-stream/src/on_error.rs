//! The behaviour after an error.

/// The behaviour after the first error, in the `try_` forms of
/// [`KeyedStreamExt`](crate::KeyedStreamExt).
///
/// An error of the stream counts like an error of a future.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnError {
    /// No new element starts, futures in flight are dropped, and the error is the last output. The
    /// default.
    ///
    /// In input order the elements before the error finish first, and start if they had not. If
    /// there is an error among them, that one is the last output.
    #[default]
    Stop,
    /// Each error is one output among the others, and all elements run.
    Continue,
}
