//! The inbox as a source of a dispatcher: paged in per key, so that memory does not grow with what
//! is stored.
//!
//! Messages are read in the order of their sequences, from a cursor on. What its key has a place
//! for in its *window* is handed over; of the rest only the sequence is remembered, and the message
//! is read again when its turn comes. Behind the cursor every message is settled, handed over, or
//! remembered.

mod reader;
pub use reader::{InboxSource, Position};

mod pages;

mod backlog;

mod done;

mod guard;

mod settings;
pub use settings::SourceSettings;
