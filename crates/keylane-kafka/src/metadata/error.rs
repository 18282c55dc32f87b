//! The error of reading metadata.

use thiserror::Error;

/// Why metadata is not understood.
#[non_exhaustive]
#[derive(Error, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// It is not Base64: another program has written it.
    #[error("it is not Base64: another program has committed it")]
    NotBase64,
    /// Its first byte names no encoding: another program, or a newer one, has written it.
    #[error(
        "its first byte is {0:#04x}, which is none of the encodings: another program has committed it"
    )]
    Foreign(u8),
    /// It is cut off or was changed.
    #[error("it is cut off or was changed")]
    Damaged,
}
