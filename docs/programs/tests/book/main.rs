//! Whether the book holds: its links, its programs, its tables of settings, its messages.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod markdown;

mod book;
mod links;
mod listed;
mod readmes;
mod settings;

mod mistakes;
