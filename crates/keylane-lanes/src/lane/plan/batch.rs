//! Several messages of one key in one handler.

/// What a lane keeps of its batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Messages that are out with the head.
    pub members: usize,
    /// Whether the parked messages have waited for more already.
    pub has_lingered: bool,
}
