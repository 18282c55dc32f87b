#![doc = include_str!("../README.md")]
//!
//! # In detail
//!
//! A semaphore with keys: one permit per key at a time, granted in the order of the requests.
//!
//! A `Dispatcher` takes messages and runs a handler for each in a separate task. Where the work is
//! a future that the caller polls anyway, such as a request in a service, nothing has to be moved:
//! the future only has to wait until no other work of its key runs. It does so with a
//! [`KeyedPermit`] of a [`KeyedSemaphore`].
//!
//! ```text
//!  reserve ──► Reservation ──acquire(key)──► Acquire ────await────► KeyedPermit ──drop
//!              one of `capacity`             waits in the lane of     one of `concurrency`,
//!                                            its key, in the order    and one for each key
//!                                            of `acquire`
//! ```
//!
//! [`KeyedSemaphore::acquire`] does all of it in one call. The steps are separate for callers that
//! must fix the order before they wait: a reservation takes capacity before the key is known, and
//! [`Reservation::acquire`] takes the place in the lane when it is called and not when its future
//! is first polled.
//!
//! The lanes are those of the dispatcher and of the `Queue`: the same map and the same state
//! machine. A waiter is parked in them, and not a message. An `acquire` whose key is free and that
//! finds a free permit has it at once: it allocates nothing but the lane's entry in the map, and
//! touches no waker.
//!
//! # The stages of a waiter
//!
//! | stage | where the waiter is | how the stage ends |
//! | --- | --- | --- |
//! | parked | in its lane, behind the head | the permit before it is dropped, or it leaves |
//! | queued | the head of its lane, in the line for a permit | it is granted, or it leaves |
//! | granted | nowhere: its `Acquire` owns the permit | the `Acquire` is polled or dropped |
//!
//! # Invariants
//!
//! 1. A lane exists from the first `acquire` of its key until the last of its waiters and permits
//!    is gone. Its head is queued or granted, and all others are parked.
//! 2. A waiter goes from parked to queued, and from parked to left, under its shard's lock. It goes
//!    from queued to granted, and from queued to left, by one exchange: the thread whose exchange
//!    succeeds has to do what follows from it.
//! 3. A head that leaves while it is queued moves its lane on, and so does a permit that is
//!    dropped.
//! 4. Waiters that have left are swept out of a lane, or of a line, as soon as they are half of it.
//! 5. No two locks are held at once: neither a shard's, nor a line's, nor a waiter's. No waker is
//!    cloned, woken or dropped under a lock, because a waker is the user's code: an `Acquire` that
//!    leaves drops its own waker first.

mod builder;
pub use builder::KeyedSemaphoreBuilder;

mod handle;
pub use handle::KeyedSemaphore;

mod reservation;
pub use reservation::{Reservation, Reserve};

mod acquire;
pub use acquire::Acquire;

mod permit;
pub use permit::KeyedPermit;

mod error;
pub use error::{AcquireError, Closed, SettingError, TryAcquireError, TryReserveError};

mod shared;
mod slots;
mod waiter;
