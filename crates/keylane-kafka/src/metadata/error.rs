//! The error of reading metadata.

use keylane_rt::text_in_debug;
use thiserror::Error;

/// An error in the metadata of a commit.
#[non_exhaustive]
#[derive(Error, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The text is not Base64: another program has written it.
    #[error("it is not Base64: another program has committed it")]
    NotBase64,
    /// The first byte names no encoding: another program, or a newer version, has written it.
    #[error(
        "its first byte is {0:#04x}, which is not a known encoding: another program has \
         committed it"
    )]
    Foreign(u8),
    /// The text was cut off or changed.
    #[error("it is truncated or damaged")]
    Damaged,
}

text_in_debug! { DecodeError: NotBase64, Foreign, Damaged }
