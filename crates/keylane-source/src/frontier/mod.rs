//! The settled positions of a partition: completions come in any order, and the frontier is the
//! offset up to which everything is settled.
//!
//! ```text
//!  offset     100  101  102  ...  107  108  109
//!             done open done  gap  done open done
//!                  ▲                             ▲
//!                  │                             end: the log has handed out everything below
//!                  position: everything below is settled. Commit this.
//!                       └── 102, 107 and 109 are beyond: settled, and above the position
//! ```
//!
//! A consumer that handles the messages of a log in parallel finishes them in another order than
//! the one in which it got them, while the log remembers one number for each partition: where to
//! read on. [`Frontier`] finds that number.
//!
//! - [`deliver`](Frontier::deliver) each position before its message is handled. Offsets only grow,
//!   and may leave gaps.
//! - [`complete`](Frontier::complete) it once its message is settled.
//! - Commit [`position`](Frontier::position) whenever you like. It never moves back.
//!
//! After a restart the log delivers again from the committed position, and so also the messages
//! that are settled beyond it. To skip those, store [`encode`](Frontier::encode) together with the
//! position, and start with [`Beyond::decode`] and [`Frontier::resume`].
//!
//! A frontier has no lock, no clock and no task: it is plain data, with or without the rest of this
//! crate.
//!
//! # Gaps
//!
//! A log hands out its offsets in order. So an offset that it has passed over, because of
//! compaction or transactions, will never arrive, and nothing waits for it: a gap below an open
//! position counts as settled. After the last delivered position nothing is known. When a log
//! reports that it has read further, without anything to deliver, call
//! [`skip_to`](Frontier::skip_to).
//!
//! # Generations
//!
//! A frontier belongs to one partition in one generation: from when the partition was assigned
//! until it is revoked. Then [`abandon`](Frontier::abandon) returns the open positions. The next
//! generation begins with a new frontier, which must not get completions of an older one: the
//! offsets are the same, but the handled messages are not those that have been delivered since.
//!
//! # Time and memory
//!
//! Every step takes constant time, on average over the steps. A step that moves the position may
//! clear away what others have left. The exception is the time after [`resume`](Frontier::resume):
//! while the log delivers offsets that were beyond, each step may search among the runs of them.
//!
//! Memory is used for the positions that are delivered and not below
//! [`position`](Frontier::position), open or not: at most 80 bytes for each 64 offsets in which
//! there are any. So it is
//!
//! - at most 1.25 bytes for each offset of the span, which [`Limits::span`] bounds,
//! - and at most 80 bytes for each of these positions, however far they are apart.
//!
//! The offsets that `resume` got come on top of this, and while there are few positions, some
//! hundred bytes. The memory of a burst is given back as positions come and go.
//!
//! # Examples
//!
//! ```
//! use keylane::source::frontier::{Beyond, Completion, Delivered, Frontier};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut frontier = Frontier::new(100);
//! for offset in [100, 101, 102, 107] {
//!     frontier.deliver(offset)?;
//! }
//! assert_eq!(frontier.complete(102), Completion::Beyond);
//! assert_eq!(frontier.complete(100), Completion::Advanced { to: 101 });
//! assert_eq!(frontier.complete(103), Completion::NotOpen);
//!
//! // A process that takes over does not handle 102 again.
//! let (committed, metadata) = (frontier.position(), frontier.encode(1_024).bytes);
//! let mut frontier = Frontier::resume(committed, Beyond::decode(&metadata)?);
//! assert_eq!(frontier.deliver(101)?, Delivered::Open);
//! assert_eq!(frontier.deliver(102)?, Delivered::Done);
//! assert_eq!(frontier.complete(101), Completion::Advanced { to: 103 });
//! # Ok(())
//! # }
//! ```

// # How it works
//
// `Frontier` keeps the rules. What was delivered and is not below the position is in `Blocks`: two
// bits for each offset, in blocks of 64, and only those blocks in which something was delivered. A
// new block comes at the back, and the first goes when nothing is open in it. So the blocks are
// sorted, and where the log has no wide gaps the place of a block follows from that of the first.
// Where it has, `Index` knows the place: a hash table of numbers.
//
// What an earlier generation has settled is in `Carried`, until the log delivers it or passes it
// over.
//
// # Invariants
//
// 1. Something is open in the first block, unless there is one block only. So the first open
//    position is found at once.
// 2. What is in `Carried` is not below the end, what is in the blocks is below it.
// 3. In the blocks, what is settled above the first open position is beyond. If nothing is open,
//    they say nothing any more.

mod state;
pub use state::{Completion, Delivered, Frontier};

mod limits;
pub use limits::Limits;

mod beyond;
pub use beyond::Beyond;

mod error;
pub use error::{DecodeError, DeliverError};

mod encoding;
pub use encoding::Encoded;

// What is delivered, by offset.
mod blocks;
mod carried;
mod index;
mod runs;

#[cfg(test)]
#[cfg(not(keylane_shuttle))]
mod model;
