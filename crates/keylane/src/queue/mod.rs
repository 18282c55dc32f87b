//! The same lanes with a pull face, for people who have workers of their own.
//!
//! ```text
//!  enqueue ──► room ──► lanes: who is the head of its key? ──► ready turns ──► dequeue ──► lease
//!                            ▲ next of this key, or lane removed      ▲                     │
//!                            └──────────── complete, give up ─────────┼─────────────────────┤
//!                                                                     └─ dropped, ran out ──┘
//! ```
//!
//! # Who owns a message
//!
//! Exactly one of: a lane (parked behind its head, or a head that waits to be tried again), the ready
//! turns, the leases. A *turn* is the one right to hand out a key, as in the engine: it is out from the
//! moment its message became the head of its lane until that message settles. So "only keys that are
//! not leased" needs no search: the turns of leased keys are not among the ready ones.
//!
//! # Why a lease holds an `Arc`
//!
//! When a lease runs out the message must be there for the next worker, and the late one may still be
//! reading it: nobody can take it out of the hands of a thread. So the queue keeps the message and lends
//! it. To clone it for each lease instead would ask every user for `M: Clone`, and make all pay for what
//! hardly ever happens; here it is one allocation per message, with its key beside it.
//!
//! # Who keeps the time
//!
//! One small task per queue. Without it, those who wait in `dequeue` would have to hand the watch to each
//! other whenever one of them is dropped, and a lease would run out only when somebody asks. The task
//! sleeps until the earliest end of a lease that it has heard of; a lease that is completed before
//! does not wake it. All leases are as long as each other unless they are extended, so they stand in
//! one line in the order in which they end, and granting or ending one is a step of constant cost.
//!
//! Whether a lease has run out is decided by the clock and not by this task: who completes late is
//! refused, whether or not the task has run.
//!
//! # Invariants
//!
//! 1. Permits of `turns`, and those given to a `dequeue` that has not used them yet, are as many as
//!    the ready turns. So one permit is one turn, and a `dequeue` that is dropped passes it on.
//! 2. Room in use = messages accepted and not settled.
//! 3. A head that waits to be tried again is in its lane, and its time is in the desk at least once.
//! 4. Lock order: none is taken while another is held. Under the desk's lock no code of the user's
//!    runs; under a shard's lock only the key's `Hash`, `Eq` and `Clone` do.
//! 5. `accepted = settled` after `close` means that nothing can come back: then, and not earlier, those
//!    who wait in `dequeue` are sent home.

mod handle;
pub use handle::Queue;

mod builder;
pub use builder::QueueBuilder;

mod lease;
pub use lease::{Again, Lease};

mod returned;
pub use returned::Returned;

mod report;
pub use report::QueueReport;

mod error;
pub use error::{EnqueueError, LeaseError, TryDequeueError, TryEnqueueError};

mod shared;
mod time;

mod desk;
mod item;
mod leases;

mod driver;
