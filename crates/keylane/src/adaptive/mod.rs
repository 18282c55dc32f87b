//! A concurrency limit that follows what the handler can do.
//!
//! ```text
//!  attempt ──Sample──► Meter ──► Window ──Seen──► Controller ──limit──► the ready queue
//! ```
//!
//! # The idea
//!
//! By Little's law, attempts in flight = throughput × mean latency, whatever the distribution of
//! the latencies. So `in flight × latency without queueing ÷ latency` is the number of attempts
//! that are really in progress; the others only wait somewhere behind the handler. The limit goes
//! to that number plus some headroom. That is TCP Vegas (Brakmo and Peterson, 1995), written as the
//! gradient of Netflix' [concurrency-limits].
//!
//! # Where it differs from `Gradient2Limit`, and why
//!
//! - There the latency without queueing is a slow average of all latencies. A dispatcher has a
//!   backlog most of the time, the average becomes that of the full queue, and the limit creeps up
//!   to its maximum. Here it is learned only where there is no queue: from windows that are faster
//!   than all before, from windows in which the limit was not used, and from *probes*: every now
//!   and then the limit is halved for a window. If the latency falls with it, there was a queue; if
//!   the throughput falls with it, there is none, and this latency is the handler's own. BBR's
//!   `ProbeRTT` (Cardwell et al., 2016) is the same thought.
//! - Each sample brings the number that was in flight when it started, so a window that is late
//!   tells the truth about the load that it saw, and the loop does not swing.
//! - Means, and not minima: the fastest of a handler that is fast for some messages and slow for
//!   others says nothing. A single sample counts at most as some multiple of what was usual.
//!
//! [concurrency-limits]: https://github.com/Netflix/concurrency-limits

mod settings;
pub use settings::Adaptive;

mod window;

mod controller;
use controller::Controller;

mod meter;
pub(crate) use meter::{Decided, Ended, Meter, Started};

#[cfg(all(test, not(keylane_shuttle)))]
mod simulation;
