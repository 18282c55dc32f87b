//! The errors of a frontier, one small type per operation.

use keylane_rt::text_in_debug;
use thiserror::Error;

/// The reason why [`deliver`](super::Frontier::deliver) has not taken a position. The frontier is
/// unchanged.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum DeliverError {
    /// As many positions as [`Limits::open`](super::Limits::open) are open. Deliver this one again
    /// when one of them is completed.
    #[error("too many positions are open")]
    TooManyOpen,
    /// It is too far from the first open position for [`Limits::span`](super::Limits::span).
    /// Deliver it again when the frontier has moved.
    #[error("the position is too far from the first open one")]
    SpanTooWide,
    /// It was delivered before, or passed over, or it is below where the frontier began: offsets
    /// only grow.
    #[error("the position is below one that was delivered before")]
    OutOfOrder,
    /// No log has such an offset: offsets are below
    /// [`Frontier::HIGHEST`](super::Frontier::HIGHEST).
    #[error("the position is above the highest offset of a log")]
    TooHigh,
}

text_in_debug! { DeliverError: TooManyOpen, SpanTooWide, OutOfOrder, TooHigh }

/// The reason why bytes are not a [`Beyond`](super::Beyond). A consumer that goes on without it
/// gets the messages again that were settled beyond the position.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes are of another version of this format, or of none.
    #[error("the version of the format is unknown")]
    Unsupported,
    /// The bytes are cut off or were changed, or name positions above
    /// [`Frontier::HIGHEST`](super::Frontier::HIGHEST).
    #[error("the bytes are truncated or damaged")]
    Corrupt,
}

text_in_debug! { DecodeError: Unsupported, Corrupt }
