#![doc = include_str!("../README.md")]

// # How it works
//
//     acquire, drop ──► Shared (one lock: Table, pure) ◄── Keeper (a task) ──► LeaseStore:
//     Lease::run ◄── Validity: until when, or lost                             1,000 keys a call
//
// **Until when is a lease held?**
// For nine tenths of its time, counted from before the call that has granted or renewed it was
// sent. The store counts from later, and longer (`table.rs`).
//
// **What does a renewal cost?**
// Leases of one call have the same times. So each time has a list of keys, and a renewal moves a
// key from the end of one list to another. An order of single leases compared their keys, which are
// far apart in memory, and each renewal woke a holder. That took 5.05 % of a core for 100,000
// leases of 30 s, instead of 3.0 to 4.1, where the cache was busy (`Schedule` in `table.rs`,
// `ValiditySender::hold`).
//
// **Who says that a lease has ended?**
// The clock, and not the task alone: the task may be in the queue of a worker that is blocked
// (`validity.rs`, `Lease::run`).
//
// **When is a lease renewed?**
// After a third of its time. A longer one is renewed later, up to a half (25 s and more), as long
// as 10 s are left to try again. More renewals would bring nothing but cost to the store, which has
// most of it: 4.5 to 5.5 % of a core in Redis 8, for 100,000 leases of 30 s that were renewed after
// a third (`renew_at`).
//
// **May a call that was given up do harm when it is done late?**
// No. Granting anew never shortens, and a token that is not the last does nothing
// (`LeaseStore::acquire`).
//
// **What if the store hangs?**
// Calls are dropped after a third of the time to live. Leases end by the clock, independently of
// them (`keeper.rs`).
//
// **What if a caller is gone when its lease comes?**
// The lease is dropped, and so released (`Shared::answered`).
//
// **May two callers in one process have a key?**
// The second one does not ask: the store would grant the lease to the same owner (`Table::ask`).
//
// **What do many callers cost that wait for one key of another process?**
// One of them asks. The others wait behind it, in their order (`turns.rs`).
//
// **What if a release fails?**
// It is tried again while the lease would be held there, so that its key is not blocked for long
// after a short fault (`Shared::not_released`).

mod leases;
pub use leases::Leases;

mod lease;
pub use lease::Lease;

mod watch;
pub use watch::LeaseWatch;

mod counts;
pub use counts::{HeldLease, LeaseStats};

mod lanes;
pub use lanes::Lanes;

mod settings;
pub use settings::Settings;

mod ttl;
pub use ttl::{LONGEST_TTL, SHORTEST_TTL};

pub mod error;

pub mod store;
pub use store::{LeaseStore, Owner, Token};

pub mod table;

mod memory;
pub use memory::MemoryStore;

pub mod conformance;

mod metrics;
pub use metrics::published_metrics;

mod keeper;
mod owner;
mod shared;
mod turns;
mod validity;

pub use async_trait::async_trait;
pub use bytes::Bytes;
