#![doc = include_str!("../README.md")]

// # How it works
//
// There is one row for each message, `sequence → record`. It is appended on accept and removed when
// the message is done. There is nothing per key. A reader goes forward from a cursor. If a key has
// no place for a message in its window, only the sequence is remembered, and the message is read
// again in its turn. `source/backlog.rs` remembers it as the distance to the one before, two bytes
// where keys alternate. With rows by key a copy-on-write tree writes a page for each key of a
// commit: a tenth of the speed (`COMPARE.md`).
//
// # Start marks
//
// A start mark is one positioned write of 32 bytes before each attempt, without a sync. What the
// operating system has outlives the process, and a message that kills the process must not escape
// that. Marks are synced with the next commit. The mark of a message that has settled is *stale*:
// the next start is written over it, which saves every second write, and the remaining ones are
// cleared when the source is told. So a handler that has ended counts as started if the process
// dies in between. These are at most 64 messages, which come again with one attempt more.
//
// # Files that are not in their place
//
// Files can be written as long as they are open, also after their directory was removed or a copy
// took its place. So the writer compares its open files with those that the paths name (`place.rs`
// in `keylane-disk`): between each commit and its answers, once a second, and before it closes. A
// copy that is written over the database has its inode. There the first bytes are compared with
// those written last (`storage.rs` in `keylane-disk`). If they differ, nothing is written over them
// any more, also not to close.
//
// A sequence names a message within one history. Each opening draws a number. Its first commit
// writes the number into the database, and the stamp into the file of starts. The two must agree
// when they are opened (`OpenError::OtherHistory`).
//
// # Rows that are done
//
// Rows that are done leave in passes over neighbouring rows (`Applied::remove_done`). One by one, a
// row costs several times as much, and a page of the file is written for each of them. New rows are
// appended together.

mod inbox;
pub use inbox::Inbox;

mod config;
pub use config::InboxBuilder;

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
pub use source::{InboxPosition, InboxSource, SourceSettings};

#[cfg(feature = "spool")]
mod spool;

pub mod conformance;

mod metrics;
pub use metrics::published_metrics;

mod limits;
mod versions;

pub use async_trait::async_trait;
pub use bytes::Bytes;
