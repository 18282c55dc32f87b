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
//! - `queue.rs` is the handle: it pushes, shows the state, and makes sources; and what the handle
//!   and its sources share. `config.rs` has the settings, and `builder.rs` sets them.
//! - `letters.rs` has what an operator does to single dead letters.
//! - `source.rs` makes the requests of a worker. [`keylane_connector`] has the rest of a source.
//! - `lua/turn.lua` is one round trip of a worker, the most important script; `lua/common.lua` is
//!   the part that the scripts share. `record.rs` is the format of an element.
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

// # How it works
//
//     LPUSH ──► list ── turn (a script) ──► work:<worker>, a hash by token ──► source ──► driver
//                ▲        │   owners: key → how many are open, worker                        │
//                │        └──► inbox:<worker>: elements of its keys                          │
//                └── give back: a worker that leaves, or whose lease has run out ◄── acks ◄──┘
//
// **Why is a hash in the place of the processing list?**
// An ack is one field that is removed, however much is held. A list would be searched, or would
// keep done elements behind a slow one (`turn.lua`).
//
// **Why does order hold over processes?**
// The worker that has an element of a key is its owner until all of them are settled. A worker that
// takes another one sends it there. All of that is one step (`turn.lua`).
//
// **Why is there no monitor to run?**
// Each round trip of each worker finds one expired worker, and a step of its own gives its elements
// back. Without a round trip `return_expired` does it (`lost` in `turn.lua`, `expire.lua`).
//
// **May two workers give the same elements back?**
// No: a script happens as a whole, and the expired worker is gone after the first (`give_back` in
// `common.lua`).
//
// **What if an answer is lost?**
// The elements that were handed out are in the hash. The worker reads all of it again, in order and
// under new tokens, before anything else, and says the same again (`enter.lua`,
// `List::enter`).
//
// **Why do tokens grow over a failover?**
// Each is at least the time in microseconds by the server's clock (`tokens` in `common.lua`).
//
// **How does an idle worker wait?**
// In `BLMOVE` from the end of the list to the same end, which changes nothing. A call that is
// dropped or a process that is stopped takes nothing with it (`List::wait`).
//
// **What does an element wake that is sent to an inbox?**
// Nothing: its key is open with that worker, which asks again with its ack.
//
// **Which message has killed a worker?**
// That is not known at first. All elements that it had are marked, and each attempt at them is
// noted before it starts (`List::handed`, `give_back`).
//
// **Is a letter written once?**
// Yes: one step writes it and removes its element (`letter.lua`).
//
// **How is one letter found, when others in front of it go?**
// Each takes a token as its number, so the numbers grow from the oldest letter to the newest, and
// the place of one is found by halves (`numbered.lua`).
//
// **What if the list is of another type, or forbidden?**
// The source has nothing but the list. So it fails, and is opened again at growing pauses. Only the
// wait may be refused alone: it is a part, and the list is looked at instead (`List::wait`).
//
// A turn says everything that there is to say and takes up to 1,000 elements, one turn after the
// other. More elements make larger turns, not more turns. The next turn is under way while the
// elements of the one before are handled.

mod queue;
pub use queue::{KeyHolder, ListQueue, ListStatus, WorkerStatus};

mod builder;
pub use builder::ListBuilder;

mod config;
pub use config::ListKey;

mod source;
pub use source::{HandOut, ListPosition, ListSource};

mod sink;

mod letters;
pub use letters::{ListLetter, ListLetters};

mod peers;

mod figures;
pub(crate) use figures::published_of_lists;

// The data in the server.
mod keys;
mod record;
mod script;
