#![doc = include_str!("../README.md")]
//!
//! # In detail
//!
//! Keyed work on a stream: in order for each key, with a limit on the keys at once, in the
//! consumer's task.
//!
//! ```text
//!            capacity is left, and   its key is free         finished
//!            fewer in flight ┌─────────────────────► in flight ───────► outputs ──► consumer
//!  source ───────────────────┤ its key is busy         ▲    │
//!            (pulled)        └──────► lane ────────────┘    │ its key is freed: the oldest
//!                                      │ lane is full       │ of its lane starts, in the same poll
//!                                      ▼                    │
//!                                     held ◄────────────────┘ tries again once a key was freed
//! ```
//!
//! Nothing is spawned, and the adapters wait only for the source and the futures, so they need no
//! runtime, no `'static` and no `Send`. The lanes are those of the dispatcher: the head of
//! a lane is out, here as a future in a `FuturesUnordered`, and the elements behind it are parked.
//!
//! # Who owns an element
//!
//! Exactly one of: a lane, `held`, a future in flight, the outputs. An element is moved from one to
//! the next, so it is neither lost nor run twice.
//!
//! # Invariants
//!
//! 1. A lane exists exactly while its head is in flight, or its key is the freed one. So each key
//!    has at most one future, and every parked element will start.
//! 2. The next element of the freed key starts before the source is polled, before the held element
//!    tries again, and before another future is polled. So no element overtakes another of its key.
//! 3. The source is polled only while fewer than `concurrency` futures are in flight, nothing is
//!    held, fewer than `capacity` elements count, and fewer than `concurrency` outputs are ready:
//!    the adapter does not run ahead of a slow consumer. Within these limits each poll pulls all it
//!    can.
//! 4. The outputs expect each index once, and it is then completed or skipped once. A panic skips
//!    it.
//! 5. The user's code is called where no step is half done: the element of the call is noted before
//!    (`freed`) or reported right after (`Lost`). So a panic reaches the consumer, who may poll
//!    again.
//! 6. A poll ends: after a fixed amount of work it wakes its task and returns.
//!
//! A panic in the `Drop` of a key, of an element or of a future is logged and has no other effect,
//! as in the dispatcher.

mod ext;
pub use ext::KeyedStreamExt;

mod map;
pub use map::{MapKeyed, MapKeyedUnordered};

mod for_each;
pub use for_each::{ForEachKeyed, TryForEachKeyed};

mod try_map;
pub use try_map::{TryMapKeyed, TryMapKeyedUnordered};

mod on_error;
pub use on_error::OnError;

mod core;
mod elements;
mod keyed_future;
mod limits;
mod outputs;
