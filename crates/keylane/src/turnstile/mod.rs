//! Turns by key, for work that stays in its caller's own task.
//!
//! A [`Dispatcher`](crate::Dispatcher) takes messages and runs them. Where the work is a future that its
//! caller polls anyway (a request in a service), nothing has to be moved anywhere: it is enough that it
//! waits for its turn. That is what a [`Turnstile`] gives out.
//!
//! ```text
//!  reserve ──► Room ──enter(key)──► Place ──────────────await──────────────► Turn ──drop──► next
//!              one of capacity      in the lane of its key,                  the head of its lane,
//!                                   in the order of `enter`                  one of concurrency
//! ```
//!
//! The lanes are the same as the dispatcher's and the [`Queue`](crate::Queue)'s: the same map, the same
//! state machine. What is parked in them is not a message but a waker. Somebody who finds no lane of its
//! key and a turn to be had has it at once: nothing is allocated, and no waker is touched.
//!
//! # Who moves a place on
//!
//! | stage | who holds the waiter | how it ends |
//! | --- | --- | --- |
//! | parked | its lane | whoever ends the turn before it calls it; or it leaves |
//! | called | the line of those who wait for one of `concurrency` | whoever gives one back grants it; or it leaves |
//! | granted | nobody | its owner drops it |
//!
//! # Invariants
//!
//! 1. A lane exists from the `enter` of its first place until its last one is gone; its head is called or
//!    granted, and all others are parked.
//! 2. From parked to called, and from parked to gone, a place goes under its shard's lock. From called to
//!    granted, or to gone, by one exchange: whoever makes it owes what follows from it.
//! 3. Whoever leaves while called moves its lane on; so does whoever drops a turn.
//! 4. Who has left costs nothing for long: as soon as half of a lane, or of a line, have left, they are
//!    swept out of it.
//! 5. Lock order: a shard's, then none. A line's, then none. A waiter's, then none. No waker is cloned,
//!    woken or dropped under a lock: whoever leaves drops its own first.

mod builder;
pub use builder::TurnstileBuilder;

mod handle;
pub use handle::Turnstile;

mod room;
pub use room::{Reserve, Room};

mod place;
pub use place::Place;

mod turn;
pub use turn::Turn;

mod error;
pub use error::{EnterError, TryEnterError, TurnstileClosed};

mod gate;
mod shared;
mod waiter;
