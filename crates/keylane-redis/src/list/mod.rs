//! Lists: a queue that loses nothing, for producers that know only `LPUSH`.
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
//! - `queue.rs` is the handle: it pushes, shows, and makes sources. `settings.rs` is how it is
//!   kept.
//! - `source.rs` is the task of the driver, `session.rs` the task that speaks with the server, and
//!   `mailbox.rs` what is between them. `guard.rs` is told of each attempt.
//! - `lua/turn.lua` is one round trip of a worker, and the heart of it; `lua/common.lua` is what
//!   the scripts share. `element.rs` is what an element is.
//!
//! # The order of a key
//!
//! 1. A script happens as a whole, so no element is in two places or in none.
//! 2. While an element of a key is open, its worker is the owner of the key, and a worker that
//!    takes another element of that key sends it to the inbox of the owner. Both count as open.
//! 3. A worker takes from its inbox first: what is there was in front of what is in the list.
//! 4. What a worker has goes back to the front of the list as it was: what it has taken, by place,
//!    and then its inbox.
//! 5. A call has a number, and says which one its worker knows to be done. If the server has done
//!    another one, because an answer was lost, or a request has come twice or late, nothing is
//!    taken: the worker enters again, and what it holds comes first, in parts of so many bytes.
//!
//! # A server that goes back
//!
//! A backup, a replica that was behind, a server that has lost everything: what is there has
//! happened, and some of what the worker was told has not. It sees this by the number of its last
//! call, or of the last token where the server does not know it any more. It lets go of what it
//! has, and enters anew, with the highest token that it has seen: what is handed out from then on
//! is above it. So nothing that settles late can be taken for something else.

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

// What is in the server.
mod element;
mod keys;
mod script;
