//! Which messages are handed over, and which are only remembered. Pure.

mod pages;
pub(super) use pages::{PageEntry, Pages};

mod backlog;
