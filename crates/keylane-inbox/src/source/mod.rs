//! The inbox as a source of a dispatcher: it pages messages in per key, so that memory does not
//! grow with the number of stored messages.
//!
//! Messages are read in the order of their sequences, from a cursor on. A message is handed over if
//! its key has room in its *window*; otherwise only its sequence is remembered, and the message is
//! read again when its turn comes. Behind the cursor every message is settled, handed over, or
//! remembered.

mod reader;
pub use reader::InboxSource;

mod position;
pub use position::InboxPosition;

mod core;

mod settle;

mod guard;

mod config;
pub use config::SourceSettings;
