#![doc = include_str!("../README.md")]
//!
//! # In detail
//!
//! A queue with a lane for each key, from which your own workers pull messages with leases.
//!
//! ```text
//!                                                    ┌─ complete, give up ──► settled, and the
//!                                                    │      next message of the key is ready
//!  enqueue ──► lane of its key ──► ready ──► dequeue: Lease
//!                     ▲              ▲               │
//!                     │              └───────────────┼─ dropped, expired, or failed: again now
//!                     └──────────────────────────────┴─ failed: again later
//! ```
//!
//! Start with [`Queue`]; [`QueueBuilder`] has every setting. A [`Lease`] is the right of one worker
//! to one message. [`Redelivery`] says when a message comes back that a worker has failed with, and
//! [`Returned`] is a message that leaves the queue without being completed.

// # How it works
//
// A message is owned by exactly one of: its lane, the ready messages, the leases. The lane of a key
// gives its head out as soon as there is one, and the next one when that head has settled. So the
// messages of leased keys are not among the ready ones, and `dequeue` never searches.
//
// The lease table decides, as a pure machine under one lock. `Shared` applies what it decides to
// the lanes and to the tasks that wait.
//
// # Why a lease holds an `Arc`
//
// When a lease expires, the message goes to the next worker while the late one may still be reading
// it. So the queue keeps the message and lends it. A clone for each lease would ask every user for
// `M: Clone`, and charge every message for what is rare; this is one allocation per message, with
// its key beside it.
//
// # Time
//
// The clock decides whether a lease has expired, and it is always that of the queue's own runtime:
// a caller may be on a plain thread, or in a runtime whose time is paused. One task per queue, the
// driver, owns the only timer. It makes messages ready whose lease has expired, so that a waiting
// `dequeue` gets them. It sleeps until the earliest expiry it knows; a lease that is completed
// before does not wake it.
//
// # Invariants
//
// 1. Permits of `ready`, plus those that a `dequeue` was given and has not used yet, are as many as
//    the ready messages. So a permit is one message, and a `dequeue` that is dropped passes it on.
// 2. Permits of `room`, plus those that an `enqueue` was given and has not used yet, plus the
//    messages accepted and not settled, are the capacity.
// 3. A delayed head is in its lane, and its delay is in the lease table.
// 4. Lock order: no lock is taken while another one is held. No code of the user's runs under the
//    lock of the lease table; under the lock of a shard only the key's `Hash`, `Eq` and `Clone` do.
// 5. After `close`, `accepted = settled` means that no message can come back. Then, and not
//    earlier, the queue is finished, and no task waits in `dequeue` any more.

mod handle;
pub use handle::Queue;

mod builder;
pub use builder::QueueBuilder;

mod lease;
pub use lease::{Lease, Redelivery};

mod returned;
pub use returned::Returned;

mod report;
pub use report::Report;

mod error;
pub use error::{EnqueueError, LeaseError, SpawnError, TryDequeueError, TryEnqueueError};

// What applies the decisions.
mod driver;
mod lanes;
mod shared;
mod timing;

// What decides.
mod delivery;
mod expiry_queue;
mod lease_table;
