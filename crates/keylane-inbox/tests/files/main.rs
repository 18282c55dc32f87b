//! The files of an inbox: made, locked, of another version, damaged, taken away, copied back, and of another program.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod damaged;
mod directory;
mod displaced;
mod format;
mod history;
mod locked;
