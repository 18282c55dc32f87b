//! Lanes that start only while the lease of their key is held.
//!
//! ```text
//!  router ─ held? ─┐
//!                  ▼
//!  runner ─ held? ► table ◄── look: has it a lane? ── task ──► acquire
//!     │ no            ▲                                 │
//!     └─ waits; the    └───────────── granted ───────────┘
//!        head goes back, then it is asked for
//! ```
//!
//! 1. A runner checks the lease right before it starts a job, without an await and without a notice
//!    to other tasks: `starts/`. The job carries its lease as it was when its lane was made, or
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

// # How it works
//
//     runner ─ held? ──► LaneLeaseTable ◄─ granted ─ serve_leases (a task) ──► LaneLeases
//       │                by key, 64 locks   look: no lane? give it up ─┘
//       └─ no: the head waits in its lane, then ask ────▲
//
// **Who asks whether a lease is held?**
// The runner, right before a start. It looks at the clock, and into the table where the job does
// not know; there is no await (`starts/`, `LaneLeaseTable::held`).
//
// **Why does the engine have the table, and not the leases?**
// Only the engine knows which keys have lanes. So leases are a call that acquires, and a value that
// is dropped. A future and a value can wait, give up a wait and release without more
// (`keylane::lease`).
//
// **What does a start cost?**
// A look at a coarse clock and at the count of losses. The router looks up the lease itself when it
// makes the lane, and the end of the lease goes with the job. A message that follows another one in
// its lane takes over what that one knew. So the router alone takes the lock of the table, for the
// first message of a lane, and the lock does not wander between processors. When each runner looked
// for each message, it was 0.95 µs on two busy processors; now it is 0.76. The job is not larger
// for it: `HeldLease` has 15 bytes, beside the tag of `Work` (`Detours::lease`, `hand_lease_on`).
//
// **What does a lease cost?**
// 20 bytes for a small key. The table keeps the time until which the lease is held, and asks the
// lease again only after that, or when a loss was counted. Bytes cost more than the lock: entries
// of 10,000 keys that do not fit into the cache of a processor made a message twice as dear. The
// exact clock costs 28 ns, the coarse one of Linux 5. The coarse one is behind by up to 10 ms, so
// two ticks of 8 ms are added to it (`shard.rs`, `Ticker`, `LaneLeases::losses`).
//
// **Where does a head wait?**
// Parked, if it has not started: it may expire or be superseded, and has used nothing of its rate.
// Else as a head in backoff, with its number of attempts (`Lane::{wait_for_lease, hold, leased}`).
//
// **May a grant be missed?**
// No: the lane waits first, and asks for the lease after that (`decisions/unleased.rs`).
//
// **What notices that a key is idle?**
// The task. Once in each linger it looks whether the key has a lane, under the lock that a start
// needs. A key without a lease costs nothing, and a lane that goes tells nothing
// (`LaneLeaseTable::look`).
//
// **What ends an attempt whose lease is lost?**
// The attempt itself: by the clock before each poll, and by a wake-up. The first poll needs no
// look, because it follows that of the runner at once. Its message is kept for that as for a retry
// (`run/in_flight.rs`).
//
// **What if there is no room for another lease?**
// The task looks every four milliseconds, and nothing lingers (`Rounds` in `serve.rs`).
//
// **What if the leases are closed?**
// A lane that waits for them cannot go on by itself, as a halted lane: a drain hands its messages
// back (`LaneTable::is_endless`).
//
// Left as it is: a key that always has messages in one process is never given to another. The store
// does not say that others wait. To give the key up now and then would cost each busy key a gap of
// `look_again`.

mod shard;
pub(crate) use shard::{HeldLease, Moment};

mod table;
pub(crate) use table::{Asked, LaneLeaseTable};

mod serve;
pub(crate) use serve::serve_leases;
