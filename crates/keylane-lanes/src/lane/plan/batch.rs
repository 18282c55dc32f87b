//! Several messages of one key in one handler.

/// What a lane keeps of its batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Messages that are out with the head.
    pub members: usize,
    /// Whether the parked messages have waited for more already.
    pub has_lingered: bool,
}

impl Batch {
    /// Returns whether the parked messages begin to wait for more now: they do that once.
    pub(crate) fn begins_to_linger(&mut self) -> bool {
        !std::mem::replace(&mut self.has_lingered, true)
    }
}
