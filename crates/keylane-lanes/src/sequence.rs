//! The rules for the versions of a key.

/// The rule for versions that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each one behind the other, without a gap.
    Contiguous,
    /// Any newer one behind an older one.
    Monotonic,
}

/// The start of a key that is not remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With this version.
    At(u64),
    /// With the first version that comes.
    FirstSeen,
}

/// The behaviour of a key when a version has not come in time.
///
/// In each case an event names the missing versions.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnGap {
    /// Gives the missing versions up and goes on with the first that is there. If they come later,
    /// they are duplicates.
    Skip,
    /// Sends the messages behind the gap to the dead-letter sink, with `Failure::Gap` and no
    /// attempts, and continues to wait.
    ///
    /// The versions in the letters are missing from then on, like those of the gap: later messages
    /// of the key follow them to the sink until all of them have been sent again.
    DeadLetter,
    /// Stops the key until an operator decides: `LaneControl::skip` skips the gap,
    /// `LaneControl::resume` waits once more. The key also goes on when the missing version comes.
    /// The default.
    #[default]
    Halt,
}
