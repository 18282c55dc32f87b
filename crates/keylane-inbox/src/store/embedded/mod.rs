//! The store in a directory of its own.

// # How it works
//
// One thread, the writer, owns the write side of the database. Calls reach it over a channel. It
// takes the calls that have arrived, applies them in one transaction, commits, and answers. While a
// commit runs, the next group gathers in the channel. So a single caller pays for one commit, and
// many callers share one.
//
// Reads run on Tokio's blocking threads, each in a transaction of its own: they see committed data,
// and block no write.
//
// # The directory
//
//     keylane-inbox   says that this is an inbox, and of which format
//     lock            locked while the inbox is open
//     messages.redb   the database
//     starts          which messages were being handled, and the last commit
//
// The database is created beside its place and moved there when it is complete; then the marker
// follows. So a marker without a database means a loss, and never an unfinished inbox.
//
// # When a commit fails
//
// No call of the group counts as accepted, and every caller of it gets an error. The database is
// dropped, because it refuses everything after an I/O error, and opened again: at once, and then
// with each call, or after a moment. After a failed *sync* the operating system may have marked
// pages as written that never reached the disk, and a later sync would not report them. So the
// whole file is read, rewritten as it is, and synced, before it is trusted.
//
// # When the files are not in their place
//
// A process can go on writing to a file after its directory was removed or renamed, or a copy
// replaced it, and no later process finds these writes. So the writer compares its open files with
// those that the paths name: once a second, before it closes, and between each commit and its
// answers. A copy that overwrites the database has its name and its inode: so the header is
// compared with the last one that was written, once a second and before each commit. A displaced
// file is not written. The database is closed, and opened again once the same files are back.
//
// A failed read makes the database refuse everything as well. Its caller gets an error, and tells
// the writer to open the database again.
//
// # Invariants
//
// 1. A reply is sent after its commit, and never from a transaction that failed.
// 2. `Totals` in memory are those of the last successful commit; after a failure they are read
//    anew.
// 3. Only the writer takes the lock of the database for writing: to open, to close and to compact.
//    A read holds it for reading until its transaction is gone. So a compaction never meets a
//    transaction.
// 4. The file of starts never has a commit that was not durable.

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

// The state that both sides share, and the reading side.
mod reads;
mod redriven;
mod shared;

// The files.
mod database;
mod directory;
mod fault;
mod identity;
mod tables;
