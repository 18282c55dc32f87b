//! One lane, as it was a moment ago.

use std::time::Duration;

use tokio::time::Instant;

/// The state of a lane, as of a moment ago.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Messages of this key that are accepted and not settled, the head included.
    pub depth: usize,
    /// The state of the head, and so the reason why the others wait.
    pub state: LaneState,
    /// The time since the head was accepted; `None` while a runner takes it, and where there is
    /// none.
    pub head_age: Option<Duration>,
    /// The time that the oldest message behind the head has waited; `None` if there is none, or
    /// only messages that wait for a missing version.
    pub oldest_waiting: Option<Duration>,
    /// Whether the lane is at its capacity.
    pub full: bool,
    /// The fencing token of the lease of its key, while it is held here
    /// ([`leased_by`](crate::Builder::leased_by)).
    pub lease: Option<u64>,
}

/// One message of a lane, as of a moment ago.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageView {
    /// The number of the message. Each message of a dispatcher has its own, and they grow in the
    /// order of acceptance.
    pub id: u64,
    /// The time since it was accepted.
    pub age: Duration,
    /// Whether it is the head of the lane, and was started before or is with its handler.
    pub is_head: bool,
    /// Its version, where lanes [sequence](crate::discipline::Sequence); 0 where they do not.
    pub version: u64,
    /// Where it comes from; `None` if it was sent directly, is with its handler, or if its source
    /// did not answer within a second.
    pub origin: Option<MessageOrigin>,
}

/// The place of a message in its source.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageOrigin {
    /// The name of the source.
    pub source: String,
    /// What the source [says](crate::source::Source::describer) of the position, cut to 256
    /// characters. The source cannot forget what is behind it before this message has settled, if
    /// it forgets in order.
    pub position: String,
}

/// A key that holds a source back, as of a moment ago: see
/// [`holding_back`](crate::Dispatcher::holding_back).
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldingBack<K> {
    /// The key.
    pub key: K,
    /// Where its message is that the source cannot go past.
    pub origin: MessageOrigin,
}

/// An attempt that failed.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The failure, cut to 256 characters.
    pub why: Box<str>,
    /// The time of the failure.
    pub at: Instant,
}

/// The state of the head of a lane.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneState {
    /// It waits for a runner, or its handler is in its first poll.
    Ready,
    /// Its handler or the dead-letter sink works on it.
    Running {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The time that it has waited inside the handler.
        lasted: Duration,
    },
    /// It failed, and waits for its next attempt.
    Backoff {
        /// The number of the next attempt.
        next_attempt: u32,
        /// The time until then.
        due_in: Duration,
        /// The last failure.
        why: String,
    },
    /// It was given up on, and the dead-letter sink has not accepted it yet.
    DeadLettering {
        /// The number of refusals by the sink.
        refusals: u32,
        /// The time until the sink is called again.
        due_in: Duration,
        /// The sink's last error.
        why: String,
    },
    /// It was given up on, and the lane waits for a decision.
    Halted {
        /// The number of attempts.
        attempts: u32,
        /// The last failure.
        why: String,
    },
    /// The lane is paused: it waits for [`LaneControl::resume`](crate::LaneControl::resume).
    Paused,
    /// Its key is above [`rate_per_key`](crate::Builder::rate_per_key).
    RateLimited {
        /// The time until it may start.
        due_in: Duration,
    },
    /// It may not start yet ([`send_when`](crate::Dispatcher::send_when)).
    Delayed {
        /// The time until it may start.
        due_in: Duration,
    },
    /// It waits for more messages for its batch.
    Lingering {
        /// The time until it starts without them.
        due_in: Duration,
    },
    /// It waits for the lease of its key ([`leased_by`](crate::Builder::leased_by)): another holder
    /// has it, or it cannot be acquired.
    Leasing,
    /// It waits for the answer of the [`VersionStore`](crate::source::VersionStore) for its key.
    Loading,
    /// Versions before it are missing.
    Gap {
        /// The first missing version.
        first: u64,
        /// The last missing version before the next one that is here.
        last: u64,
        /// The time that it still waits for them; `None` if they have halted the lane.
        due_in: Option<Duration>,
    },
}
