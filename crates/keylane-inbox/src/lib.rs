#![doc = include_str!("../README.md")]

mod inbox;
pub use inbox::Inbox;

mod builder;
pub use builder::Builder;

mod message;
pub use message::{Header, MessageId, NewMessage, StoredMessage};

mod letter;
pub use letter::{Letter, LetterKind};

mod letters;
pub use letters::Letters;

pub mod error;

pub mod store;
pub use store::{Accepted, InboxStore, Stats, SyncMode};

pub mod record;

pub mod attempts;

mod source;
pub use source::{InboxSource, Position, SourceSettings};

#[cfg(feature = "spool")]
mod spool;

pub mod conformance;

mod limits;
mod versions;

pub use async_trait::async_trait;
pub use bytes::Bytes;
