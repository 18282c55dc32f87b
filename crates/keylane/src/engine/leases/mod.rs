//! Lanes that start only while the lease of their key is held.
//!
//! ```text
//!  router ─ held? ─┐
//!                  ▼
//!  runner ─ held? ► table ◄── look: has it a lane? ── task ──► acquire
//!     │ no            ▲                                 │
//!     └─ wait.rs: the └───────────── granted ───────────┘
//!        head goes back, then it is asked for
//! ```
//!
//! 1. A runner checks the lease right before it starts a job, without an await and without a notice
//!    to other tasks: `admit.rs`. The job carries its lease as it was when its lane was made, or
//!    when the message before it started. The check that it is still held costs a look at the clock
//!    and at the count of losses. Otherwise the runner looks into the table.
//! 2. If the lease is not held, the head goes back into its lane, and *then* it is asked for. So a
//!    grant that comes meanwhile is either seen by the runner that asks, or finds the lane waiting.
//! 3. A lease leaves the table when its key has no lane, for as long as it lingers; or when it is
//!    lost. Whether there is a lane is looked up under the lock of the table. A job that is out has
//!    a lane, so a lease that is in use stays: nothing has to say when a lane goes.
//! 4. A lease that is lost in flight is found by the attempt itself: by the clock before each poll,
//!    and by a wake-up. The attempt is dropped before the key waits again.
//! 5. At the end of the dispatcher all leases go, when nothing runs any more.
//!
//! Under a lock of the table the shards of the lanes are locked, and never the other way round.

mod shard;
pub(crate) use shard::{HeldLease, Moment};

mod table;
pub(crate) use table::LaneLeaseTable;

mod serve;
pub(crate) use serve::serve_leases;

mod wait;
