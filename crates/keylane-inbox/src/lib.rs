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

#[cfg(test)]
mod tests {
    /// The README of the repository shows the consumer that is compiled as a test in ours: it is the first page of
    /// a crate that does not know this one.
    #[test]
    fn the_first_page_shows_a_program_that_compiles() {
        let ours = include_str!("../README.md");
        let program = ours.split("```rust,no_run\n").nth(1);
        let program = program.and_then(|rest| rest.split("```").next()).unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let Ok(first_page) = std::fs::read_to_string(path) else {
            return; // a published crate comes without it
        };
        assert!(first_page.contains(program), "{program}");
    }
}
