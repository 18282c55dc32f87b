//! Keyed work on a stream: in order for each key, as many keys at once as you allow, in the consumer's task.
//!
//! ```text
//!            room inside, and      its key is free            finished
//!            fewer in flight ┌─────────────────────► in flight ───────► answers ──► consumer
//!  source ───────────────────┤ its key is busy         ▲    │
//!            (pulled)        └──────► lane ────────────┘    │ its key is freed: the oldest
//!                                      │ lane is full       │ of its lane starts, in the same poll
//!                                      ▼                    │
//!                                     held ◄────────────────┘ tries again once a key was freed
//! ```
//!
//! Nothing is spawned and nothing is waited for but the source and the futures: no runtime, no
//! `'static`, no `Send`. Lanes are the dispatcher's: the head of a lane is out, here as a future in a
//! `FuturesUnordered`, and what is behind it is parked.
//!
//! # Who owns an element
//!
//! Exactly one of: a lane, `held`, a future in flight, the answers. It moves, so it is neither lost nor
//! run twice.
//!
//! # Invariants
//!
//! 1. A lane exists exactly while its head is in flight, or its key is the one that was freed. So one
//!    future per key, and whatever is parked will start.
//! 2. The key that was freed moves on before the source is asked, before what is held tries again, and
//!    before another future is polled. So nothing overtakes.
//! 3. The source is polled only while fewer than `concurrency` futures are in flight, nothing is held, fewer
//!    than `capacity` elements are inside or have a place among the answers, and fewer than `concurrency`
//!    answers can be taken: a consumer that is slow is not run ahead of. All other places are filled in
//!    each poll.
//! 4. Each index is expected by the answers once, and then put or skipped once. A panic skips it.
//! 5. The user's code runs where nothing is half done: what it was about is written down before
//!    (`freed`), or put right behind it (`Lost`). So a panic goes to the consumer, who may ask again.
//! 6. A poll ends: after so much work it wakes its task and returns.
//!
//! A panic in the `Drop` of a key, of an element or of a future is logged and changes nothing, as in the
//! dispatcher.

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

mod sink;
pub use sink::DispatcherSink;

mod answers;
mod core;
mod flight;
mod inside;
mod limits;
