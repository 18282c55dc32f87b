//! The store in a directory of its own.

// # How it works
//
// One thread, the writer, owns the write side of the database. Calls come to it over a channel; it
// takes what has come, applies it in one transaction, commits, and answers. While a commit runs,
// the next group gathers in the channel. So a single caller pays for one commit, and many share it.
//
// Reads run on Tokio's blocking threads, each in a transaction of its own: they see what is
// committed, and hold up no write.
//
// # The directory
//
//     keylane-inbox   says that this is an inbox, and of which format
//     lock            locked while the inbox is open
//     messages.redb   the database
//     starts          which messages were being handled, and the last commit
//
// The database is made beside its place and moved there when it is whole; then comes the marker. So
// a marker without a database is a loss and never an inbox that was not finished.
//
// # When a commit fails
//
// Nothing of the group counts as accepted, and every caller of it hears of it. The database is
// dropped, because it refuses everything after an I/O error, and opened again: at once, and then
// whenever a call comes, or a moment has passed. Where a *sync* failed, the operating system may
// have marked pages as written that never reached the disk, and a later sync would say nothing of
// them. So the whole file is read, written again as it is, and synced, before it is trusted.
//
// # When the files are not in their place
//
// A file can be written after its directory was removed or renamed, or a copy was put in its place,
// and no later process finds what was written. So the writer compares the files that it has open
// with those that the paths name: once a second, when it is told to close, and between each commit
// and its answers. A copy that is written over the database has its name and its inode: there the
// header is compared with what was written last, once a second and before each commit. What is not
// in its place is not written: the database is let go of, and opened again once the same files are
// back.
//
// A read that fails makes the database refuse everything as well. Its caller hears of it, and tells
// the writer to open the database again.
//
// # Invariants
//
// 1. A reply is sent after the commit that it is about, and never from a transaction that failed.
// 2. `Totals` in memory are those of the last commit that succeeded; whatever fails reads them
//    anew.
// 3. Nothing but the writer takes the lock of the database for writing: to open, to close
//    and to compact. A read holds it for reading until its transaction is gone. So a compaction
//    never meets a transaction.
// 4. The file of starts never knows of a commit that was not durable.

mod settings;
pub use settings::{Settings, SyncMode};

mod handle;
pub use handle::EmbeddedStore;

mod inner;
mod open;

// The writing side.
mod apply;
mod compaction;
mod group;
mod op;
mod writer;

// What both sides share, and the reading side.
mod reads;
mod redriven;
mod shared;

// The files.
mod database;
mod directory;
mod fault;
mod identity;
mod tables;
