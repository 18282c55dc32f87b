//! The files of an inbox: made, locked, of another version, damaged, and of another program.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod damaged;
mod directory;
mod format;
mod locked;
