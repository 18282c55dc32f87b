//! Lists: a queue that loses no element, for producers that know only `LPUSH`.
//!
//! ```text
//!  LPUSH ──► orders ──► turn (a script) ──► {orders}:keylane:work:<worker>   place → element
//!              ▲             │ a key that another worker has: to its inbox
//!              │             ▼
//!              │        {orders}:keylane:owners                 key → how many are open, worker
//!              └── give back ── a worker whose lease has run out, or that leaves
//! ```
//!
//! # Where to look
//!
//! - `queue.rs` is the handle: it pushes, shows the state, and makes sources. `settings.rs` has the
//!   settings.
//! - `source.rs` is the task of the driver, `session.rs` the task that talks to the server, and
//!   `outbox.rs` connects them. `guard.rs` is called before each attempt.
//! - `lua/turn.lua` is one round trip of a worker, the most important script; `lua/common.lua` is
//!   the part that the scripts share. `element.rs` is the format of an element.
//!
//! # The order of a key
//!
//! 1. A script is atomic, so each element is in exactly one place.
//! 2. While an element of a key is open, its worker is the owner of the key. A worker that takes
//!    another element of that key sends it to the inbox of the owner. Both count as open.
//! 3. A worker takes from its inbox first: these elements were in front of those in the list.
//! 4. The elements of a worker go back to the front of the list in their order: first those that it
//!    has taken, by place, then its inbox.
//! 5. Each call has a number, and contains the number of the last call that the worker knows to be
//!    done. If the server has done another one, because an answer was lost, or a request arrived
//!    twice or late, the call takes nothing. The worker enters again, and gets its own elements
//!    first, in parts of limited size.
//!
//! # A server that goes back
//!
//! After a backup is restored, a stale replica takes over, or a server loses all its data, only the
//! state that is left counts: some answers that the worker has received are undone. The worker
//! detects this by the number of its last call, or by the last token if the server does not know
//! the number any more. It releases its elements and enters again with the highest token that it
//! has seen: all later tokens are above it. So a late settlement never applies to another element.

mod queue;
pub use queue::{KeyHolder, ListQueue, ListStatus, WorkerStatus};

mod settings;
pub use settings::{ListBuilder, ListKey};

mod source;
pub use source::{ListPosition, ListSource};

mod sink;

mod guard;
mod outbox;
mod peers;
mod session;
mod wake;

// The data in the server.
mod element;
mod keys;
mod script;
