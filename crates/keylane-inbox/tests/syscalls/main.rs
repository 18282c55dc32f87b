//! Every system call on the files of an inbox fails: the n-th one, for every n.
//!
//! A process accepts, handles and settles under strace, which makes one of its system calls fail
//! with `EIO` or `ENOSPC`: once, or from then on. Whatever fails, every call of the inbox that
//! cannot be answered has an error that tells its caller what to do; nothing panics; what was
//! answered stands on a sync that came back without an error, which the log of the system calls
//! shows; and the inbox, opened again on a disk that works, holds what it must.
//!
//! A sample; all of it with `KEYLANE_SYSCALLS=2000`.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod child;
mod files;
mod judge;
mod strace;
mod sweep;
mod trace;
