//! One lane, as it was a moment ago.

use std::time::Duration;

/// What a lane looked like a moment ago.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Messages of this key that are accepted and not settled, the head included.
    pub depth: usize,
    /// What the head is doing, and so why the others wait.
    pub state: LaneState,
    /// How long ago the head was accepted; `None` while a runner takes it, and where there is none.
    pub head_age: Option<Duration>,
    /// How long the oldest message behind the head has waited; `None` if there is none, or only
    /// messages that wait for a missing version.
    pub oldest_waiting: Option<Duration>,
    /// Whether the lane is at its capacity.
    pub full: bool,
}

/// What the head of a lane is doing.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneState {
    /// It waits for a runner, or its handler is in its first poll.
    Ready,
    /// Its handler, or the dead-letter sink, has it.
    Running {
        /// Which attempt it is, from 1.
        attempt: u32,
        /// How long it has been waiting inside the handler.
        lasted: Duration,
    },
    /// It failed, and waits for its next attempt.
    Backoff {
        /// Which attempt comes next.
        next_attempt: u32,
        /// How long until then.
        due_in: Duration,
        /// The last failure.
        why: String,
    },
    /// It was given up on, and the dead-letter sink did not take it yet.
    DeadLettering {
        /// How often the sink has refused.
        refusals: u32,
        /// How long until the sink is asked again.
        due_in: Duration,
        /// The sink's last error.
        why: String,
    },
    /// It was given up on, and the lane waits for a decision.
    Halted {
        /// How often it was tried.
        attempts: u32,
        /// The last failure.
        why: String,
    },
    /// The lane is paused: it waits for [`LaneControl::resume`](crate::LaneControl::resume).
    Paused,
    /// Its key is above [`rate_per_key`](crate::Builder::rate_per_key).
    RateLimited {
        /// How long until it may start.
        due_in: Duration,
    },
    /// It is not to start yet ([`send_when`](crate::Dispatcher::send_when)).
    Delayed {
        /// How long until its time.
        due_in: Duration,
    },
    /// It waits for more messages to come into its batch.
    Lingering {
        /// How long until it starts without them.
        due_in: Duration,
    },
    /// It waits for the lease of its key ([`leased_by`](crate::Builder::leased_by)): another holder
    /// has it, or it cannot be acquired.
    Leasing,
    /// It waits for the [`VersionStore`](crate::VersionStore) to say where the key stands.
    Loading,
    /// Versions before it are missing.
    Gap {
        /// The first missing version.
        first: u64,
        /// The last missing version before the next that is here.
        last: u64,
        /// How long they are still waited for; `None` if the lane is halted by them.
        due_in: Option<Duration>,
    },
}
