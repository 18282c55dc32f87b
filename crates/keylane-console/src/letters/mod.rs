//! Dead letters: what a store of them does, and the jobs over it.

mod store;
pub use store::{LetterStore, StoredLetter};

mod shown;
pub(crate) use shown::LetterRow;

mod shelf;
pub(crate) use shelf::{Page, Shelf, Unfit, What, Which};

mod job;

#[cfg(feature = "inbox")]
mod inbox;

#[cfg(feature = "redis")]
mod redis;

#[cfg(feature = "kafka")]
mod kafka;

#[cfg(any(feature = "inbox", feature = "kafka", feature = "redis"))]
mod id;

#[cfg(any(feature = "kafka", feature = "redis"))]
mod raw;
