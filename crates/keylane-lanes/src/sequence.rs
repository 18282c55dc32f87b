//! How the versions of a key follow each other.

/// Which versions may follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each one behind the other, without a gap.
    Contiguous,
    /// Any newer one behind an older one.
    Monotonic,
}

/// Where a key starts that is not remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With this version.
    At(u64),
    /// With the first version that comes.
    FirstSeen,
}

/// What happens to a key when a version has not come in time.
///
/// In each case an event names the missing versions.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnGap {
    /// Give the missing versions up and go on with the first that is there. If they come later,
    /// they are duplicates.
    Skip,
    /// Bring what waits behind the gap to the dead-letter sink, with
    /// `Failure::Gap` and no attempts, and wait on.
    ///
    /// The versions in the letters are missing from then on, as those of the gap are: later
    /// messages of the key follow them to the sink until all of them have been sent again.
    DeadLetter,
    /// Stop the key until an operator decides:
    /// `LaneControl::skip` skips the gap,
    /// `LaneControl::resume` waits once more. The missing version lets
    /// it go on as well. The default.
    #[default]
    Halt,
}
